//go:build cuda

package cuda

import (
	"runtime"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"gorgonia.org/cu"
)

// The driver loads each image on the first GPU: it holds machine code for this GPU, or PTX that the driver compiles. And
// each has the kernels that the index says.
func TestImagesLoad(t *testing.T) {
	logGPU(t)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	gpu, err := cu.GetDevice(0)
	if err != nil {
		t.Fatalf("this test wants an NVIDIA GPU: %v", err)
	}
	ctx, err := gpu.MakeContext(cu.SchedAuto)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := ctx.Destroy(); err != nil {
			t.Error(err)
		}
	}()
	major, _, err := gpu.ComputeCapability()
	if err != nil {
		t.Fatal(err)
	}
	modules := map[string]cu.Module{}
	for kernel, image := range Kernels.of {
		module, ok := modules[image]
		if !ok {
			data, err := Kernels.Read(image)
			if err != nil {
				t.Fatal(err)
			}
			if module, err = cu.LoadData(string(data)); err != nil {
				t.Fatalf("the driver refuses image %s: %v", image, err)
			}
			modules[image] = module
		}
		if _, err := module.Function(kernel); err != nil && major == 9 { // others have fewer
			t.Errorf("%s is not in image %s: %v", kernel, image, err)
		}
	}
	for image, module := range modules {
		if err := module.Unload(); err != nil {
			t.Errorf("%s: %v", image, err)
		}
	}
}

// logGPU logs the GPU and the driver that the tests run on.
func logGPU(t *testing.T) {
	if result := nvml.Init(); result != nvml.SUCCESS {
		t.Fatalf("NVML does not start: %v", nvml.ErrorString(result))
	}
	defer nvml.Shutdown()
	gpu, result := nvml.DeviceGetHandleByIndex(0)
	if result != nvml.SUCCESS {
		t.Fatalf("NVML has no GPU 0: %v", nvml.ErrorString(result))
	}
	name, _ := gpu.GetName()
	driver, _ := nvml.SystemGetDriverVersion()
	t.Logf("%s, driver %s", name, driver)
}
