//go:build cuda

package gpu

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
)

// library returns an NVML with one GPU, which reports one Xid. Its other values are
// unsupported if supported is false.
func library(supported bool, uuid *string, shut *atomic.Int32) *mock.Interface {
	answer := nvml.ERROR_NOT_SUPPORTED
	if supported {
		answer = nvml.SUCCESS
	}
	device := &mock.Device{
		GetUtilizationRatesFunc: func() (nvml.Utilization, nvml.Return) { return nvml.Utilization{Gpu: 75}, answer },
		GetTemperatureFunc:      func(nvml.TemperatureSensors) (uint32, nvml.Return) { return 61, answer },
		GetPowerUsageFunc:       func() (uint32, nvml.Return) { return 312500, answer },
		GetCurrentClocksEventReasonsFunc: func() (uint64, nvml.Return) {
			return nvml.ClocksThrottleReasonHwThermalSlowdown, answer
		},
		GetTotalEccErrorsFunc: func(kind nvml.MemoryErrorType, _ nvml.EccCounterType) (uint64, nvml.Return) {
			if kind == nvml.MEMORY_ERROR_TYPE_CORRECTED {
				return 7, answer
			}
			return 0, answer
		},
		RegisterEventsFunc: func(uint64, nvml.EventSet) nvml.Return { return answer },
	}
	var events atomic.Int32
	set := &mock.EventSet{
		WaitFunc: func(uint32) (nvml.EventData, nvml.Return) {
			if events.Add(1) == 1 {
				return nvml.EventData{EventType: nvml.EventTypeXidCriticalError, EventData: 79}, nvml.SUCCESS
			}
			time.Sleep(time.Millisecond)
			return nvml.EventData{}, nvml.ERROR_TIMEOUT
		},
		FreeFunc: func() nvml.Return { return nvml.SUCCESS },
	}
	return &mock.Interface{
		InitFunc:     func() nvml.Return { return nvml.SUCCESS },
		ShutdownFunc: func() nvml.Return { shut.Add(1); return nvml.SUCCESS },
		DeviceGetHandleByUUIDFunc: func(id string) (nvml.Device, nvml.Return) {
			*uuid = id
			return device, nvml.SUCCESS
		},
		EventSetCreateFunc: func() (nvml.EventSet, nvml.Return) { return set, nvml.SUCCESS },
	}
}

func TestReader(t *testing.T) {
	var uuid string
	var shut atomic.Int32
	g, err := open(library(true, &uuid, &shut), "GPU-1")
	if err != nil {
		t.Fatal(err)
	}
	end := time.Now().Add(20 * time.Second)
	for len(g.Read().Xid) == 0 && time.Now().Before(end) {
		time.Sleep(time.Millisecond)
	}
	r := g.Read()
	if uuid != "GPU-1" || *r.Utilisation != 0.75 || *r.Temperature != 61 || *r.Power != 312.5 ||
		r.ECC["corrected"] != 7 || r.Xid[79] != 1 {
		t.Errorf("%s: %+v", uuid, r)
	}
	if on, known := r.Throttling["power_cap"]; !r.Throttling["thermal"] || on || !known {
		t.Errorf("throttling %v", r.Throttling)
	}
	g.Close()
	if shut.Load() != 1 {
		t.Error("NVML was not shut down")
	}
}

// Values that the driver does not report are nil.
func TestUnsupportedValues(t *testing.T) {
	var uuid string
	var shut atomic.Int32
	g, err := open(library(false, &uuid, &shut), "GPU-1")
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	if r := g.Read(); r.Utilisation != nil || r.Temperature != nil || r.Power != nil ||
		r.Throttling != nil || len(r.ECC)+len(r.Xid) > 0 {
		t.Errorf("%+v", r)
	}
}

func TestNoLibrary(t *testing.T) {
	lib := &mock.Interface{InitFunc: func() nvml.Return { return nvml.ERROR_LIBRARY_NOT_FOUND }}
	if _, err := open(lib, "GPU-1"); err == nil {
		t.Error("no error")
	}
}
