package metrics

import (
	"slices"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"reel.internal/reel/generator/internal/gpu"
	"reel.internal/reel/protocol"
)

// collector computes metrics from a status and from a GPU's reading, at each scrape.
type collector struct {
	status func() *protocol.Status
	gpu    func() []gpu.Reading // of each GPU; nil: there is no GPU to read
}

// emit adds one value of a metric, with the values of its labels.
type emit func(value float64, labels ...string)

// figure is a metric that is read from a T.
type figure[T any] struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	read func(from T, to emit)
}

// gauge returns a figure that may decrease.
func gauge[T any](name, help string, read func(T, emit), labels ...string) figure[T] {
	return figure[T]{prometheus.NewDesc(prefix+name, help, labels, nil), prometheus.GaugeValue, read}
}

// total returns a figure that counts from the start of the generator.
func total[T any](name, help string, read func(T, emit), labels ...string) figure[T] {
	return figure[T]{prometheus.NewDesc(prefix+name+"_total", help, labels, nil), prometheus.CounterValue, read}
}

// one returns a figure's read function for a single number.
func one[T any, N int | int64 | uint64 | float64](of func(T) N) func(T, emit) {
	return func(from T, to emit) { to(float64(of(from))) }
}

// known returns a figure's read function for a number that may be nil.
func known[T any](of func(T) *float64) func(T, emit) {
	return func(from T, to emit) {
		if value := of(from); value != nil {
			to(*value)
		}
	}
}

// Describe lists every metric, including those that a loading generator does not have.
func (c collector) Describe(to chan<- *prometheus.Desc) {
	for _, f := range statusFigures {
		to <- f.desc
	}
	for _, f := range gpuFigures {
		to <- f.desc
	}
}

// Collect reads every metric.
func (c collector) Collect(to chan<- prometheus.Metric) {
	collect(to, statusFigures, c.status())
	if c.gpu == nil {
		return
	}
	for _, reading := range c.gpu() {
		collect(to, gpuFigures, &reading, strconv.Itoa(reading.GPU))
	}
}

// collect reads figures, whose first labels have the values that are given.
func collect[T any](to chan<- prometheus.Metric, figures []figure[T], from T, first ...string) {
	for _, f := range figures {
		f.read(from, func(value float64, labels ...string) {
			to <- prometheus.MustNewConstMetric(f.desc, f.kind, value, slices.Concat(first, labels)...)
		})
	}
}

// flag returns 1 for true and 0 for false.
func flag(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
