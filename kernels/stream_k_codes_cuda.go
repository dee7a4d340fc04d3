//go:build cuda

package kernels

import (
	"fmt"

	"reel.internal/reel/kernels/device/cuda"
)

// codesVariants are the stream-K kernels over quantised weights, by format.
var codesVariants = map[DType][]variant{}

func init() {
	for _, t := range usualFormats {
		for _, tokens := range codesTokenTiles {
			v := variant{suffix: fmt.Sprintf("_streamk%d", tokens), tiles: streamKTiles, tokens: tokens, threads: 384}
			_, v.shared = codesRing(t, tokens)
			codesVariants[t] = append(codesVariants[t], v)
		}
	}
}

// launchStreamKCodes launches p, of the prefill class and over quantised weights that stream-K has kernels for: a
// kernel for each run of units whose weights have one format.
func launchStreamKCodes[T any](q *cuda.Queue, p productLaunch, args T) error {
	runs, err := p.runs()
	if err != nil {
		return err
	}
	r, err := p.input(q, formats[F16].kernel)
	for _, run := range runs {
		if err == nil {
			err = launchSlices(q, p, cheapest(codesVariants[run.format], int(p.in.n)), run, r, args)
		}
	}
	return err
}
