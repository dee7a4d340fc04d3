//go:build cuda

package gpu

import (
	"fmt"
	"maps"
	"sync"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// Reader reads one GPU. It is safe for concurrent use.
type Reader struct {
	lib    nvml.Interface
	device nvml.Device
	events nvml.EventSet // nil: the driver reports none

	mu   sync.Mutex
	xid  map[uint64]uint64
	stop chan struct{}
	done chan struct{} // closed when no goroutine waits for events
}

// Open returns a reader of the GPU with the UUID ("GPU-" and hexadecimal digits). Close it
// after use.
func Open(uuid string) (*Reader, error) { return open(nvml.New(), uuid) }

func open(lib nvml.Interface, uuid string) (*Reader, error) {
	if r := lib.Init(); r != nvml.SUCCESS {
		return nil, fmt.Errorf("gpu: NVML: %s", nvml.ErrorString(r))
	}
	device, r := lib.DeviceGetHandleByUUID(uuid)
	if r != nvml.SUCCESS {
		_ = lib.Shutdown()
		return nil, fmt.Errorf("gpu: NVML finds no %s: %s", uuid, nvml.ErrorString(r))
	}
	g := &Reader{
		lib: lib, device: device, xid: map[uint64]uint64{},
		stop: make(chan struct{}), done: make(chan struct{}),
	}
	g.watch()
	return g, nil
}

// Close frees the reader.
func (g *Reader) Close() {
	close(g.stop)
	<-g.done
	if g.events != nil {
		_ = g.events.Free()
	}
	_ = g.lib.Shutdown()
}

// watch starts to count Xid errors, if the driver reports them.
func (g *Reader) watch() {
	set, r := g.lib.EventSetCreate()
	if r != nvml.SUCCESS {
		close(g.done)
		return
	}
	g.events = set
	if g.device.RegisterEvents(nvml.EventTypeXidCriticalError, set) != nvml.SUCCESS {
		close(g.done)
		return
	}
	go g.count()
}

// eventWait is the longest wait for an event, in milliseconds. Close may take as long.
const eventWait = 500

// count counts events until Close, or until the driver returns an error.
func (g *Reader) count() {
	defer close(g.done)
	for {
		select {
		case <-g.stop:
			return
		default:
		}
		event, r := g.events.Wait(eventWait)
		switch {
		case r == nvml.ERROR_TIMEOUT:
		case r != nvml.SUCCESS:
			return
		case event.EventType == nvml.EventTypeXidCriticalError:
			g.mu.Lock()
			g.xid[event.EventData]++
			g.mu.Unlock()
		}
	}
}

// reasons are the reasons for reduced clocks, by their names in metrics.
var reasons = map[string]uint64{
	"power_cap":      nvml.ClocksEventReasonSwPowerCap,
	"slowdown":       nvml.ClocksThrottleReasonHwSlowdown,
	"thermal":        nvml.ClocksEventReasonSwThermalSlowdown | nvml.ClocksThrottleReasonHwThermalSlowdown,
	"power_brake":    nvml.ClocksThrottleReasonHwPowerBrakeSlowdown,
	"sync_boost":     nvml.ClocksEventReasonSyncBoost,
	"clocks_setting": nvml.ClocksEventReasonApplicationsClocksSetting,
}

// Read asks the driver for the GPU's state.
func (g *Reader) Read() Reading {
	var now Reading
	if u, r := g.device.GetUtilizationRates(); r == nvml.SUCCESS {
		now.Utilisation = scaled(u.Gpu, 100)
	}
	if t, r := g.device.GetTemperature(nvml.TEMPERATURE_GPU); r == nvml.SUCCESS {
		now.Temperature = scaled(t, 1)
	}
	if mw, r := g.device.GetPowerUsage(); r == nvml.SUCCESS {
		now.Power = scaled(mw, 1000)
	}
	if bits, r := g.device.GetCurrentClocksEventReasons(); r == nvml.SUCCESS {
		now.Throttling = map[string]bool{}
		for name, mask := range reasons {
			now.Throttling[name] = bits&mask != 0
		}
	}
	now.ECC = g.ecc()
	g.mu.Lock()
	defer g.mu.Unlock()
	now.Xid = maps.Clone(g.xid)
	return now
}

func scaled(n uint32, by float64) *float64 {
	value := float64(n) / by
	return &value
}

// eccKinds are the kinds of memory errors, by their names in metrics.
var eccKinds = map[string]nvml.MemoryErrorType{
	"corrected":   nvml.MEMORY_ERROR_TYPE_CORRECTED,
	"uncorrected": nvml.MEMORY_ERROR_TYPE_UNCORRECTED,
}

// ecc returns the numbers of memory errors over the GPU's life; none if the GPU does not
// count them.
func (g *Reader) ecc() map[string]uint64 {
	counts := map[string]uint64{}
	for name, kind := range eccKinds {
		if n, r := g.device.GetTotalEccErrors(kind, nvml.AGGREGATE_ECC); r == nvml.SUCCESS {
			counts[name] = n
		}
	}
	return counts
}
