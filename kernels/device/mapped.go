package device

import (
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
)

// ErrUnreadable says that a page of a mapped file is gone: the file became shorter.
var ErrUnreadable = errors.New("device: memory of a mapped file cannot be read any more")

// copyThreads is how many threads read a mapped file at once: each page is a fault.
const copyThreads = 4

// CopyMapped copies src, which may be a mapped file, to dst, which is at least as long.
// It does not end the process where the file has become shorter: ErrUnreadable.
func CopyMapped(dst, src []byte) error {
	var all sync.WaitGroup
	errs := make([]error, copyThreads)
	each := (len(src) + copyThreads - 1) / copyThreads
	for i := range errs {
		begin, end := min(i*each, len(src)), min((i+1)*each, len(src))
		all.Go(func() { errs[i] = copyMapped(dst[begin:end], src[begin:end]) })
	}
	all.Wait()
	return errors.Join(errs...)
}

func copyMapped(dst, src []byte) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		switch r := recover().(type) {
		case nil:
		case fault:
			err = fmt.Errorf("%w: %w", ErrUnreadable, r)
		default:
			panic(r)
		}
	}()
	copy(dst, src)
	return nil
}
