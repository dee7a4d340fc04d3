package doctor

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// gpu checks the GPU, its driver, its device nodes and the CUDA program.
func (s *System) gpu() []Finding {
	if s.Device == "host" {
		return nil
	}
	onBus, nodes := s.countOnBus(), s.glob("dev/nvidia[0-9]*")
	if onBus == 0 && len(nodes) == 0 {
		return []Finding{s.noGPU()}
	}
	all := []Finding{ok("gpu", fmt.Sprintf("NVIDIA GPUs: %d", max(onBus, len(nodes)))), s.driver(), s.library()}
	all = append(all, s.node("nvidiactl"))
	for _, number := range s.numbers() {
		all = append(all, s.node("nvidia"+strconv.Itoa(number)))
	}
	all = append(all, s.node("nvidia-uvm"))
	return append(all, s.program())
}

// program checks that the CUDA program is installed and starts.
func (s *System) program() Finding {
	if err := s.CUDAProgram(); err != nil {
		return failure("program", err.Error(), "build it with make cuda, and install it beside reel-generator")
	}
	if err := s.CUDAStarts(); err != nil {
		return failure("program", err.Error(), "fix the failures above; if there are none: sudo dmesg | grep -i nvrm, "+
			"and reboot if the driver was updated")
	}
	return ok("program", "the generator for GPUs starts")
}

// noGPU is a failure only if the device must be a GPU.
func (s *System) noGPU() Finding {
	const found = "this machine has no NVIDIA GPU"
	if s.Device == "cuda" {
		return failure("gpu", found,
			"give --device auto or host to serve on the processors; in a container, pass the GPU in")
	}
	return note("gpu", found+": it serves on the processors",
		"if the machine has one: install its driver; in a container, pass the GPU in")
}

// countOnBus counts NVIDIA's display controllers on the PCI bus.
func (s *System) countOnBus() (n int) {
	for _, dir := range s.glob("sys/bus/pci/devices/*") {
		vendor, _ := os.ReadFile(filepath.Join(dir, "vendor"))
		class, _ := os.ReadFile(filepath.Join(dir, "class"))
		if strings.HasPrefix(string(vendor), "0x10de") && strings.HasPrefix(string(class), "0x03") {
			n++
		}
	}
	return n
}

var moduleVersion = regexp.MustCompile(`Kernel Module[a-zA-Z0-9_ ]*?\s+([0-9]+\.[0-9.]+)`)

// driver checks the driver's kernel module.
func (s *System) driver() Finding {
	text, err := os.ReadFile(s.path("proc/driver/nvidia/version"))
	if err != nil {
		return failure("driver", "the kernel module nvidia is not loaded",
			"install NVIDIA's driver; if it is installed: sudo modprobe nvidia, and see dmesg for why it fails")
	}
	if m := moduleVersion.FindSubmatch(text); m != nil {
		return ok("driver", "kernel module "+string(m[1]))
	}
	return ok("driver", "the kernel module is loaded")
}

// library checks the driver's library, which programs load.
func (s *System) library() Finding {
	if path := s.Library(); path != "" {
		return ok("library", path)
	}
	return failure("library", "libcuda.so.1 was not found",
		"install the driver's library (libcuda1, or nvidia-driver-cuda), or name its folder in LD_LIBRARY_PATH")
}

// node checks that a device node is there and that this user may use it.
func (s *System) node(name string) Finding {
	path := s.path("dev", name)
	info, err := os.Stat(path)
	if err != nil {
		next := "sudo nvidia-modprobe -c 0"
		if name == "nvidia-uvm" {
			next = "sudo nvidia-modprobe -u -c 0"
		}
		return failure("node", "/dev/"+name+" is not there", next+"; in a container, pass the device in")
	}
	if err := s.Access(path); err != nil {
		next := "give its group the right to read and write: see the driver's NVreg_DeviceFileMode"
		if group := s.groupOf(info); group != "" && info.Mode().Perm()&0o060 == 0o060 {
			next = fmt.Sprintf("sudo usermod -aG %s %s, and log in again", group, s.User)
		}
		return failure("node", fmt.Sprintf("%s may not read and write /dev/%s (%v)", s.User, name, info.Mode()), next)
	}
	return ok("node", "/dev/"+name)
}

// card is a GPU as nvidia-smi reports it. Numbers that it does not report are negative.
type card struct {
	index       int
	name        string
	total, used int64 // bytes
	uncorrected int64 // memory errors
	celsius     int64
}

// cards returns the GPUs that nvidia-smi reports; nil if it is missing or fails.
func (s *System) cards(ctx context.Context) (list []card) {
	if s.Device == "host" || len(s.glob("dev/nvidia[0-9]*")) == 0 {
		return nil
	}
	out, err := s.Run(ctx, "nvidia-smi", "--format=csv,noheader,nounits",
		"--query-gpu=index,name,memory.total,memory.used,ecc.errors.uncorrected.volatile.total,temperature.gpu")
	if err != nil {
		return nil
	}
	for line := range strings.Lines(out) {
		cells := strings.Split(strings.TrimSpace(line), ", ")
		if len(cells) != 6 {
			continue
		}
		list = append(list, card{
			index: int(number(cells[0])), name: cells[1],
			total: number(cells[2]) << 20, used: number(cells[3]) << 20, // MiB
			uncorrected: number(cells[4]), celsius: number(cells[5]),
		})
	}
	return list
}

// number parses text; it returns -1 for text such as [N/A].
func number(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return -1
	}
	return n
}

// card returns the GPU that the generator uses; of several the one with the least free memory. It is nil if one of them
// is missing.
func (s *System) card(list []card) (least *card) {
	all := s.used(list)
	if len(all) < len(s.numbers()) {
		return nil
	}
	for i := range all {
		if c := &all[i]; least == nil || c.total-c.used < least.total-least.used {
			least = c
		}
	}
	return least
}

// hotCelsius is the temperature from which GPUs slow down.
const hotCelsius = 85

// health checks for memory errors and heat.
func (s *System) health(list []card) (all []Finding) {
	for _, c := range s.used(list) {
		all = append(all, c.health()...)
	}
	return all
}

func (c card) health() (all []Finding) {
	if c.uncorrected > 0 {
		all = append(all, failure("ecc",
			fmt.Sprintf("%s has had %d uncorrected memory errors since it was last reset", c.name, c.uncorrected),
			"stop the programs that use the GPU and reset it (sudo nvidia-smi -r), or reboot; "+
				"if the errors come again, replace the GPU"))
	}
	if c.celsius >= hotCelsius {
		all = append(all, warning("heat", fmt.Sprintf("%s has %d °C: it slows down", c.name, c.celsius),
			"look at fans and air; nvidia-smi -q -d PERFORMANCE says why clocks are held down"))
	}
	return all
}
