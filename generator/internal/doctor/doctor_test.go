package doctor

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"reel.internal/reel/protocol"
)

// machine is a System made of files.
type machine struct {
	*System
	t      *testing.T
	status *protocol.Status
	needs  int64
	outs   map[string]string // programs' output, by name and a word of their arguments
}

// healthy returns a machine without problems.
func healthy(t *testing.T) *machine {
	m := &machine{t: t, needs: 10 << 30, outs: map[string]string{
		"nvidia-smi index":                "0, NVIDIA H200, 143771, 500, 0, 41\n1, NVIDIA H200, 143771, 0, 0, 40\n",
		"nvidia-smi pid":                  "77, /usr/bin/python3, 400\n",
		"systemctl reel-generator.socket": "ActiveState=active\n",
		"systemctl reel-generator.service": "ActiveState=active\nSubState=running\nResult=success\n" +
			"ExecMainStatus=0\nNRestarts=0\nUnitFileState=enabled\n",
	}}
	m.System = &System{
		Root: t.TempDir(), User: "ann", UID: 1000, Groups: []string{"ann", "reel"}, Device: "cuda",
		Library:     func() string { return "/usr/lib/libcuda.so.1" },
		CUDAProgram: func() error { return nil },
		CUDAStarts:  func() error { return nil },
		Access:      func(string) error { return nil },
		Run:         m.run,
		Status:      func() (*protocol.Status, error) { return m.status, nil },
		Record:      func() *protocol.Record { return nil },
		Explain:     func(err error) (Level, string, string) { return Failure, err.Error(), "do this" },
		Plan:        func(int64) (int64, error) { return m.needs, nil },
		HostMemory:  func() (string, error) { return "the bound is a cgroup", nil },
		HostCache:   func(total int64) (int64, string) { return total / 4, "" },
		Setting: func(name, value string) (bool, error) {
			if value == "bad" {
				return true, errors.New("it must be good")
			}
			return name == "REEL_MODEL", nil
		},
	}
	m.status = &protocol.Status{State: protocol.StateReady, Model: "m", Device: "cuda", Memory: []protocol.MemoryUse{
		{Kind: protocol.MemoryWeights, Planned: 8 << 30, Used: 8 << 30},
		{Kind: protocol.MemoryOther, Planned: 640 << 20, Used: 650 << 20},
	}}
	m.SocketPath = m.path("run/reel/generator.sock")
	for name, text := range map[string]string{
		"sys/bus/pci/devices/0000:01:00.0/vendor": "0x10de\n", // NVIDIA
		"sys/bus/pci/devices/0000:01:00.0/class":  "0x030200\n",
		"sys/bus/pci/devices/0000:02:00.0/vendor": "0x8086\n",
		"sys/bus/pci/devices/0000:02:00.0/class":  "0x030000\n",
		"proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64" +
			"  580.159.04  Release Build\n",
		"dev/nvidiactl":                             "",
		"dev/nvidia0":                               "",
		"dev/nvidia-uvm":                            "",
		"run/systemd/system/x":                      "",
		"run/reel/generator.sock":                   "",
		"etc/systemd/system/reel-generator.service": "",
		"etc/systemd/system/reel-generator.socket":  "",
		"etc/group":                                 "root:x:0:\nreel:x:990:ann\n",
		"etc/reel/generator.env":                    "# settings\nREEL_MODEL=/srv/m\nOTHER=1\n",
	} {
		m.write(name, text)
	}
	return m
}

func (m *machine) write(name, text string) {
	m.t.Helper()
	path := m.path(name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		m.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o660); err != nil {
		m.t.Fatal(err)
	}
}

// noGenerator makes Status fail.
func (m *machine) noGenerator() {
	m.Status = func() (*protocol.Status, error) { return nil, errors.New("nobody") }
}

func (m *machine) remove(name string) {
	m.t.Helper()
	if err := os.RemoveAll(m.path(name)); err != nil {
		m.t.Fatal(err)
	}
}

func (m *machine) run(_ context.Context, name string, args ...string) (string, error) {
	for key, out := range m.outs {
		program, word, _ := strings.Cut(key, " ")
		if program == name && strings.Contains(strings.Join(args, " "), word) {
			return out, nil
		}
	}
	return "", errors.New(name + " is not there")
}

func TestHealthyMachine(t *testing.T) {
	findings := healthy(t).Examine(t.Context())
	seen := map[string]bool{}
	for _, f := range findings {
		seen[f.Check] = true
		if f.Level != OK || f.Next != "" {
			t.Errorf("%+v", f)
		}
	}
	for _, check := range []string{
		"gpu", "driver", "library", "node", "program", "model", "vram", "socket",
		"generator", "units", "settings", "group",
	} {
		if !seen[check] {
			t.Errorf("no finding for %s", check)
		}
	}
	if Failed(findings) {
		t.Error("Failed is true")
	}
}

// Each problem is found, with advice.
func TestFindings(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*machine)
		want   Finding // Found and Next are parts of the texts
	}{
		"no driver": {func(m *machine) {
			m.remove("proc/driver/nvidia/version")
		}, failure("driver", "not loaded", "modprobe nvidia")},
		"no library": {func(m *machine) {
			m.Library = func() string { return "" }
		}, failure("library", "libcuda.so.1", "LD_LIBRARY_PATH")},
		"no node": {func(m *machine) {
			m.remove("dev/nvidia0")
		}, failure("node", "/dev/nvidia0 is not there", "nvidia-modprobe")},
		"no uvm": {func(m *machine) {
			m.remove("dev/nvidia-uvm")
		}, failure("node", "nvidia-uvm", "nvidia-modprobe -u")},
		"not allowed": {func(m *machine) {
			m.Access = func(string) error { return os.ErrPermission }
		}, failure("node", "ann may not read and write /dev/nvidia0", "group")},
		"no program": {func(m *machine) {
			m.CUDAProgram = func() error { return errors.New("it is missing") }
		}, failure("program", "missing", "make cuda")},
		"no cuInit": {func(m *machine) {
			m.CUDAStarts = func() error { return errors.New("NoDevice") }
		}, failure("program", "NoDevice", "dmesg")},
		"ECC errors": {func(m *machine) {
			m.outs["nvidia-smi index"] = "0, H200, 100, 0, 3, 40\n"
		}, failure("ecc", "3 uncorrected", "nvidia-smi -r")},
		"heat": {func(m *machine) {
			m.outs["nvidia-smi index"] = "0, H200, 100, 0, [N/A], 91\n"
		}, warning("heat", "91 °C", "fans")},
		"bad model": {func(m *machine) {
			m.Plan = func(int64) (int64, error) { return 0, errors.New("no config.json") }
		}, failure("model", "no config.json", "plan")},
		"cgroup": {func(m *machine) { m.Device = "host"; m.noGenerator() }, ok("memory", "the bound is a cgroup")},
		"small cgroup": {func(m *machine) {
			m.Device = "host"
			m.noGenerator()
			m.HostMemory = func() (string, error) { return "", errors.New("memory.max of 9 MiB") }
		}, failure("memory", "memory.max of 9 MiB", "plan --device host")},
		"planned host cache": {func(m *machine) { m.noGenerator() }, ok("host cache", "it takes 35.1 GiB")},
		"small host cache": {func(m *machine) {
			m.noGenerator()
			m.HostCache = func(int64) (int64, string) { return 1 << 30, "it gets 1 GiB of 8" }
		}, warning("host cache", "it gets 1 GiB of 8", "lower --host-cache")},
		"host cache": {func(m *machine) {
			m.status.KV = protocol.KV{PageBytes: 1 << 20, HostPages: 1024, HostBytes: 1 << 30}
		}, ok("host cache", "it has 1.00 GiB")},
		"cache directory": {func(m *machine) {
			m.status.Disk = protocol.Disk{State: protocol.DiskUsed, Pages: 9, Bytes: 1 << 30, MaxBytes: 2 << 30}
		}, ok("cache dir", "9 pages, 1.00 GiB of 2.00 GiB")},
		"damaged cache directory": {func(m *machine) {
			m.status.Disk = protocol.Disk{State: protocol.DiskUsed, Errors: 2}
		}, note("cache dir", "2 were damaged", "loss of power")},
		"cache directory at first": {func(m *machine) {
			m.status.Disk.State = protocol.DiskOpening
		}, note("cache dir", "not used yet", "weights are read again")},
		"cache directory off": {func(m *machine) {
			m.status.Disk.State = protocol.DiskOff
		}, warning("cache dir", "it is not used", "mend it")},
		"half a host cache": {func(m *machine) {
			m.status.KV = protocol.KV{PageBytes: 1 << 20, HostPages: 512, HostBytes: 1 << 30}
		}, note("host cache", "512 MiB of 1.00 GiB are pinned", "the log has")},
		"leak": {func(m *machine) {
			m.status.Memory[0].Used += 65 << 20
		}, warning("vram", "weights takes 8.06 GiB", "vram --watch")},
		"others": {func(m *machine) {
			m.status.Memory[1].Used += 1 << 30
		}, warning("vram", "other takes", "nvidia-smi")},
		"too large": {func(m *machine) {
			m.status, m.needs = &protocol.Status{State: protocol.StateLoading}, 200<<30
		}, warning("vram", "/usr/bin/python3 (pid 77) 400 MiB", "end those programs")},
		"loading": {func(m *machine) {
			m.status = &protocol.Status{State: protocol.StateLoading, Progress: 0.4}
		}, note("generator", "40%", "wait")},
		"failed": {func(m *machine) {
			m.status.State = protocol.StateFailed
		}, failure("generator", "failed", "journalctl")},
		"shapes": {func(m *machine) {
			m.status.Graphs = protocol.GraphPool{Refused: 2, Failure: "odd"}
		}, warning("generator", "2 shapes could not be captured: odd", "check")},
		"template": {func(m *machine) {
			m.status.ChatFailure = "a comma"
		}, warning("generator", "no conversations: a comma", "correct the template")},
		"no generator": {func(m *machine) {
			m.Status = func() (*protocol.Status, error) { return nil, errors.New("nobody") }
		}, failure("socket", "nobody", "do this")},
		"reason": {func(m *machine) {
			m.status.State = protocol.StateFailed
			m.status.Failure = &protocol.Failure{Code: "device_failed", Message: "it fell off", Hint: "push it in"}
		}, failure("generator", "device_failed: it fell off", "push it in")},
		"last": {func(m *machine) {
			m.Status = func() (*protocol.Status, error) { return nil, errors.New("nobody") }
			m.Record = func() *protocol.Record {
				f := &protocol.Failure{Code: "out_of_memory", Message: "17 GiB are needed", Hint: "lower it"}
				return &protocol.Record{State: protocol.StateFailed, Failure: f, At: time.Now().Add(-50 * time.Hour)}
			}
		}, failure("generator", "the last one failed 2 days ago, at 20", "lower it")},
		"its cause": {func(m *machine) {
			m.Status = func() (*protocol.Status, error) { return nil, errors.New("nobody") }
			m.Record = func() *protocol.Record {
				f := &protocol.Failure{Code: "out_of_memory", Message: "17 GiB are needed", Hint: "lower it"}
				return &protocol.Record{State: protocol.StateFailed, Failure: f}
			}
		}, failure("generator", ": out_of_memory: 17 GiB", "lower it")},
		"draining": {func(m *machine) {
			m.status.State = protocol.StateDraining
		}, failure("generator", "takes no new requests", "start it again")},
		"starts by itself": {func(m *machine) {
			m.noGenerator()
			m.Explain = func(err error) (Level, string, string) { return Failure, err.Error(), "" }
			m.remove("run/systemd")
		}, failure("socket", "nobody", "start one: reel-generator")},
		"starts by systemd": {func(m *machine) {
			m.noGenerator()
			m.Explain = func(err error) (Level, string, string) { return Failure, err.Error(), "" }
		}, failure("socket", "nobody", "start one: sudo systemctl start reel-generator")},
		"open socket": {func(m *machine) {
			_ = os.Chmod(m.SocketPath, 0o666)
		}, warning("socket", "every user", "chmod")},
		"no unit": {func(m *machine) {
			m.noGenerator()
			m.remove("etc/systemd/system/reel-generator.service")
		}, note("units", "not installed", "systemd/README.md")},
		"bad config": {func(m *machine) {
			m.outs["systemctl reel-generator.service"] = "ActiveState=failed\nExecMainStatus=78\n"
		}, failure("units", "configuration", "generator.env")},
		"crashed": {func(m *machine) {
			m.outs["systemctl reel-generator.service"] = "ActiveState=failed\nResult=exit-code\n" +
				"ExecMainStatus=1\nNRestarts=5\n"
		}, failure("units", "after 5 restarts", "journalctl")},
		"stopped": {func(m *machine) {
			m.outs["systemctl reel-generator.service"] = "ActiveState=inactive\nUnitFileState=disabled\n"
		}, note("units", "inactive, disabled", "enable --now")},
		"asleep": {func(m *machine) {
			m.noGenerator()
			m.outs["systemctl reel-generator.service"] = "ActiveState=inactive\nUnitFileState=enabled\n"
			m.Record = func() *protocol.Record { return &protocol.Record{State: protocol.StateSleeping} }
		}, ok("units", "sleeps until the next request")},
		"socket unit": {func(m *machine) {
			m.outs["systemctl reel-generator.socket"] = "ActiveState=inactive\n"
		}, warning("units", "not active", "enable --now reel-generator.socket")},
		"restarts": {func(m *machine) {
			m.outs["systemctl reel-generator.service"] = "ActiveState=active\nNRestarts=3\n"
		}, warning("units", "3 restarts", "journalctl")},
		"bad name": {func(m *machine) {
			m.write("etc/reel/generator.env", "REEL_MODL=x\n")
		}, warning("settings", "generator.env:1: REEL_MODL", "--help")},
		"bad value": {func(m *machine) {
			m.write("etc/reel/generator.env", "\nREEL_MODEL=bad\n")
		}, failure("settings", "generator.env:2: REEL_MODEL=bad: it must be good", "restart")},
		"no group": {func(m *machine) {
			m.write("etc/group", "root:x:0:\n")
		}, failure("group", "no group reel", "systemd-sysusers")},
		"no member": {func(m *machine) {
			m.Groups = nil
		}, warning("group", "ann is not in the group reel", "usermod -aG reel ann")},
	} {
		t.Run(name, func(t *testing.T) {
			m := healthy(t)
			c.change(m)
			findings := m.Examine(t.Context())
			if !has(findings, c.want) {
				t.Errorf("no %+v in %+v", c.want, findings)
			}
			if c.want.Level == Failure && !Failed(findings) {
				t.Error("Failed is false")
			}
		})
	}
}

func has(findings []Finding, want Finding) bool {
	for _, f := range findings {
		if f.Check == want.Check && f.Level == want.Level &&
			strings.Contains(f.Found, want.Found) && strings.Contains(f.Next, want.Next) {
			return true
		}
	}
	return false
}

// A missing GPU is a failure only with --device cuda.
func TestNoGPU(t *testing.T) {
	for device, level := range map[string]Level{"cuda": Failure, "auto": Note, "host": ""} {
		m := healthy(t)
		m.Device = device
		m.remove("sys")
		m.remove("dev")
		m.remove("proc")
		findings := m.Examine(t.Context())
		if got := levelOf(findings, "gpu"); got != level || Failed(findings) != (level == Failure) {
			t.Errorf("--device %s: %+v", device, findings)
		}
	}
}

// levelOf returns the level of a check's finding, or "" without one.
func levelOf(findings []Finding, check string) Level {
	for _, f := range findings {
		if f.Check == check {
			return f.Level
		}
	}
	return ""
}

// Rows that do not apply to a machine without GPU and systemd are left out, and small sizes
// have fitting units.
func TestRowsThatApply(t *testing.T) {
	m := healthy(t)
	m.Device = "host"
	m.remove("run/systemd")
	m.status.Device = "host"
	m.status.Memory = []protocol.MemoryUse{
		{Kind: protocol.MemoryWeights, Planned: 5 << 20, Used: 5 << 20}, {Kind: protocol.MemoryGraphs}}
	var b bytes.Buffer
	if err := Print(&b, m.Examine(t.Context())); err != nil {
		t.Fatal(err)
	}
	want := "ok       memory     as planned: weights 5.00 MiB of 5.00 MiB\n"
	for _, row := range []string{" gpu ", " model ", " vram ", " units ", "0.0", " 0 B"} {
		if strings.Contains(b.String(), row) {
			t.Errorf("a row with %q in\n%s", row, b.String())
		}
	}
	if !strings.Contains(b.String(), want) {
		t.Errorf("no %q in\n%s", want, b.String())
	}
}

func TestPrint(t *testing.T) {
	var b bytes.Buffer
	err := Print(&b, []Finding{ok("gpu", "one"), failure("node", "/dev/x is not there", "make it")})
	if err != nil {
		t.Fatal(err)
	}
	const want = "ok       gpu        one\nfailure  node       /dev/x is not there\n                    → make it\n"
	if b.String() != want {
		t.Errorf("%q, want %q", b.String(), want)
	}
}
