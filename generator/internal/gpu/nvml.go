//go:build cuda

package gpu

import (
	"fmt"
	"maps"
	"sync"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// Reader reads one GPU. Its methods may be called by several goroutines at once.
type Reader struct {
	lib    nvml.Interface
	device nvml.Device
	events nvml.EventSet // nil where the driver reports none

	mu   sync.Mutex
	xid  map[uint64]uint64
	stop chan struct{}
	done chan struct{} // closed when nobody waits for events any more
}

// Open begins to read the GPU of that UUID, GPU- and hexadecimal digits. Close ends it.
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
	g := &Reader{lib: lib, device: device, xid: map[uint64]uint64{}, stop: make(chan struct{}), done: make(chan struct{})}
	g.watch()
	return g, nil
}

// Close ends the reading.
func (g *Reader) Close() {
	close(g.stop)
	<-g.done
	if g.events != nil {
		_ = g.events.Free()
	}
	_ = g.lib.Shutdown()
}

// watch counts Xid errors from now on, where the driver reports them.
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

// wait is how long one wait for an event takes at most, in milliseconds.
const wait = 500

// count counts events until Close, or until the driver reports no more.
func (g *Reader) count() {
	defer close(g.done)
	for {
		select {
		case <-g.stop:
			return
		default:
		}
		event, r := g.events.Wait(wait)
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

// reasons are those for which clocks are held down, as metrics name them.
var reasons = map[string]uint64{
	"power_cap":      nvml.ClocksEventReasonSwPowerCap,
	"slowdown":       nvml.ClocksThrottleReasonHwSlowdown,
	"thermal":        nvml.ClocksEventReasonSwThermalSlowdown | nvml.ClocksThrottleReasonHwThermalSlowdown,
	"power_brake":    nvml.ClocksThrottleReasonHwPowerBrakeSlowdown,
	"sync_boost":     nvml.ClocksEventReasonSyncBoost,
	"clocks_setting": nvml.ClocksEventReasonApplicationsClocksSetting,
}

// Read asks the driver.
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

// ecc counts memory errors over the GPU's life; it is empty where the GPU does not.
func (g *Reader) ecc() map[string]uint64 {
	counts := map[string]uint64{}
	for name, kind := range map[string]nvml.MemoryErrorType{"corrected": nvml.MEMORY_ERROR_TYPE_CORRECTED, "uncorrected": nvml.MEMORY_ERROR_TYPE_UNCORRECTED} {
		if n, r := g.device.GetTotalEccErrors(kind, nvml.AGGREGATE_ECC); r == nvml.SUCCESS {
			counts[name] = n
		}
	}
	return counts
}
