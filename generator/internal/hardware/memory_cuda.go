//go:build cuda

package hardware

import (
	"os"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// gpuMemory measures, with NVML, the memory of a GPU that this process takes.
type gpuMemory struct {
	gpu    nvml.Device
	before uint64 // bytes taken on the GPU before this process started to use it
}

// watchMemory has to run before this process has a context on the GPU. It returns nil without
// NVML, or if CUDA numbers the GPUs in another order.
func watchMemory(gpu int) *gpuMemory {
	if os.Getenv("CUDA_VISIBLE_DEVICES") != "" || nvml.Init() != nvml.SUCCESS {
		return nil
	}
	m := &gpuMemory{}
	var result nvml.Return
	if m.gpu, result = nvml.DeviceGetHandleByIndex(gpu); result != nvml.SUCCESS {
		return nil
	}
	info, result := m.gpu.GetMemoryInfo()
	if result != nvml.SUCCESS {
		return nil
	}
	m.before = info.Used
	return m
}

// watchEach is watchMemory for each of several GPUs.
func watchEach(gpus []int) (all []*gpuMemory) {
	for _, gpu := range gpus {
		all = append(all, watchMemory(gpu))
	}
	return all
}

// taken returns the bytes of this process. If NVML does not know the process, as in most
// containers, it returns all bytes taken since watchMemory, other programs' included.
func (m *gpuMemory) taken() (bytes int64, by string) {
	if m == nil {
		return 0, ""
	}
	if list, result := m.gpu.GetComputeRunningProcesses(); result == nvml.SUCCESS {
		for _, p := range list {
			if int(p.Pid) == os.Getpid() && p.UsedGpuMemory > 0 && p.UsedGpuMemory < 1<<50 {
				return int64(p.UsedGpuMemory), "process"
			}
		}
	}
	info, result := m.gpu.GetMemoryInfo()
	if result != nvml.SUCCESS {
		return 0, ""
	}
	return int64(info.Used) - int64(m.before), "gpu"
}
