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

// gpu looks at the GPU, its driver, its device nodes and the program for it.
func (s *System) gpu() []Finding {
	if s.Device == "host" {
		return []Finding{{"gpu", OK, "--device host: none is needed", ""}}
	}
	on, nodes := s.onBus(), s.glob("dev/nvidia[0-9]*")
	if on == 0 && len(nodes) == 0 {
		return []Finding{s.noGPU()}
	}
	all := []Finding{{"gpu", OK, fmt.Sprintf("NVIDIA GPUs: %d", max(on, len(nodes))), ""}}
	all = append(all, s.driver(), s.library())
	for _, name := range []string{"nvidiactl", "nvidia" + strconv.Itoa(s.GPU), "nvidia-uvm"} {
		all = append(all, s.node(name))
	}
	if err := s.CUDAProgram(); err != nil {
		return append(all, Finding{"program", Failure, err.Error(), "build it with make cuda, and install it beside reel-generator"})
	}
	if err := s.CUDAStarts(); err != nil {
		return append(all, Finding{"program", Failure, err.Error(), "mend what is found above; where nothing is: sudo dmesg | grep -i nvrm, and reboot after the driver was updated"})
	}
	return append(all, Finding{"program", OK, "the generator for GPUs starts", ""})
}

// noGPU is a failure where a GPU was asked for.
func (s *System) noGPU() Finding {
	const found = "this machine has no NVIDIA GPU"
	if s.Device == "cuda" {
		return Finding{"gpu", Failure, found, "give --device auto or host to serve on the processors; in a container, pass the GPU in"}
	}
	return Finding{"gpu", Note, found, "nothing: it serves on the processors"}
}

// onBus counts NVIDIA's display controllers on the PCI bus.
func (s *System) onBus() (n int) {
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

// driver looks for the kernel's part of the driver.
func (s *System) driver() Finding {
	text, err := os.ReadFile(s.path("proc/driver/nvidia/version"))
	if err != nil {
		return Finding{"driver", Failure, "the kernel module nvidia is not loaded", "install NVIDIA's driver; where it is installed: sudo modprobe nvidia, and see dmesg for why it fails"}
	}
	if m := moduleVersion.FindSubmatch(text); m != nil {
		return Finding{"driver", OK, "kernel module " + string(m[1]), ""}
	}
	return Finding{"driver", OK, "the kernel module is loaded", ""}
}

// library looks for the program's part of the driver.
func (s *System) library() Finding {
	if path := s.Library(); path != "" {
		return Finding{"library", OK, path, ""}
	}
	return Finding{"library", Failure, "libcuda.so.1 was not found", "install the driver's library (libcuda1, or nvidia-driver-cuda), or name its folder in LD_LIBRARY_PATH"}
}

// node looks at a device node, and whether this user may use it.
func (s *System) node(name string) Finding {
	path := s.path("dev", name)
	info, err := os.Stat(path)
	if err != nil {
		next := "sudo nvidia-modprobe -c 0"
		if name == "nvidia-uvm" {
			next = "sudo nvidia-modprobe -u -c 0"
		}
		return Finding{"node", Failure, "/dev/" + name + " is not there", next + "; in a container, pass the device in"}
	}
	if err := s.Access(path); err != nil {
		next := "give its group the right to read and write: see the driver's NVreg_DeviceFileMode"
		if group := s.groupOf(info); group != "" && info.Mode().Perm()&0o060 == 0o060 {
			next = fmt.Sprintf("sudo usermod -aG %s %s, and log in again", group, s.User)
		}
		return Finding{"node", Failure, fmt.Sprintf("%s may not read and write /dev/%s (%v)", s.User, name, info.Mode()), next}
	}
	return Finding{"node", OK, "/dev/" + name, ""}
}

// card is a GPU as nvidia-smi tells it. What it does not tell is negative.
type card struct {
	index       int
	name        string
	total, used int64 // bytes
	uncorrected int64
	celsius     int64
}

// cards asks nvidia-smi; nil where it is not there or fails.
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
		list = append(list, card{int(number(cells[0])), cells[1], number(cells[2]) << 20, number(cells[3]) << 20, number(cells[4]), number(cells[5])})
	}
	return list
}

// number is negative where text is none, as in [N/A].
func number(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return -1
	}
	return n
}

// card is the GPU that the generator takes.
func (s *System) card(list []card) *card {
	for i := range list {
		if list[i].index == s.GPU {
			return &list[i]
		}
	}
	return nil
}

// hot is where GPUs begin to slow down, in degrees Celsius.
const hot = 85

// health looks at faults and heat.
func (s *System) health(list []card) (all []Finding) {
	c := s.card(list)
	if c == nil {
		return nil
	}
	if c.uncorrected > 0 {
		all = append(all, Finding{"ecc", Failure, fmt.Sprintf("%s has had %d uncorrected memory errors since it was last reset", c.name, c.uncorrected),
			"stop what uses the GPU and reset it (sudo nvidia-smi -r), or reboot; where they come again, have it replaced"})
	}
	if c.celsius >= hot {
		all = append(all, Finding{"heat", Warning, fmt.Sprintf("%s has %d °C: it slows down", c.name, c.celsius), "look at fans and air; nvidia-smi -q -d PERFORMANCE says why clocks are held down"})
	}
	return all
}
