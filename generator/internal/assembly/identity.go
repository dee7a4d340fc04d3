package assembly

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"runtime"

	"golang.org/x/sys/unix"

	"reel.internal/reel/generator/internal/config"
	"reel.internal/reel/generator/internal/model"
	"reel.internal/reel/generator/internal/weights"
	"reel.internal/reel/kernels"
)

// checksumRate is the rate in bytes per second at which the weights' checksum is taken, beside serving: a model of
// 15 GB takes a minute, and SHA-256 a fifth of a processor.
const checksumRate = 256 << 20

// identity is everything but the tokens that a stored page of keys and values depends on.
type identity struct {
	PageLayout, SumOrder int
	// Build is the processor's architecture and Go's version: the table of RoPE is computed in Go, and so is
	// everything on the host.
	Build      string
	Device     string // its name, cuda or host
	Machine    string // name of the GPU or the processor: some orders of sums follow the number of SMs
	KVType     kernels.DType
	PageTokens int
	PageBytes  int64
	Config     model.Config // with Context 0: a position's angles are the same in any context
	Files      []weights.FileState
	Weights    [sha256.Size]byte // of all bytes of Files
	Draft      draftIdentity     `json:",omitzero"`
}

// identity returns all of the identity but the weights.
func (l Prepared) identity() identity {
	i := identity{PageLayout: kernels.PageLayout, SumOrder: kernels.SumOrder, Build: runtime.GOARCH + " " +
		runtime.Version(), Device: l.Hardware.Name(), Machine: l.Hardware.Machine().Name,
		KVType: l.EngineOptions.KVType, PageTokens: l.EngineOptions.PageTokens, Config: l.Model.Config}
	i.PageBytes = l.pageBytes()
	i.Config.Context = 0
	if l.draft != nil {
		i.Draft.Config = l.EngineOptions.DraftModel.Config // with the factors of longrope that it chose
		i.Draft.Config.Context = 0
	}
	return i
}

// pageBytes returns the size of a KV page, on all ranks.
func (l Prepared) pageBytes() int64 {
	n := l.Model.Config.PageBytes(l.EngineOptions.KVType, l.EngineOptions.PageTokens)
	if l.draft != nil {
		ranks := int64(max(1, l.Model.Config.Ranks)) // each has all of it
		n += ranks * l.draft.config.PageBytes(l.EngineOptions.KVType, l.EngineOptions.PageTokens)
	}
	return n
}

// digest returns the identity's digest.
func (i identity) digest() ([sha256.Size]byte, error) {
	text, err := json.Marshal(i)
	return sha256.Sum256(text), err
}

// pageIdentity returns the digest of the identity of the model's pages. sum is that of the weights, draft that of the
// draft model's.
func (l Prepared) pageIdentity(sum, draft [sha256.Size]byte) ([sha256.Size]byte, error) {
	i := l.identity()
	i.Files, i.Weights = l.files, sum
	if l.draft != nil {
		i.Draft.Files, i.Draft.Weights = l.draft.files, draft
	}
	return i.digest()
}

// weightsSum returns the digest of all weights. It reads them at a low priority and a limited rate, and blocks until
// that is done or ctx ends. It does so at each start: a checksum kept from an earlier one would have to be found by
// sizes and times of files, which copies, restored backups and some file systems keep while the bytes differ. l.files
// is the state of the files before the device read them; the error is [weights.ErrChanged] if they have another one by
// now.
func (l Prepared) weightsSum(ctx context.Context, o config.Options) (sum [sha256.Size]byte, err error) {
	return l.checksum(ctx, l.weights, o, l.files)
}

// draftSum is weightsSum for the draft model; without one it is zero.
func (l Prepared) draftSum(ctx context.Context) (sum [sha256.Size]byte, err error) {
	if l.draft == nil {
		return sum, nil
	}
	return l.checksum(ctx, l.draft.tensors, config.Options{Model: l.options.DraftModel()}, l.draft.files)
}

// checksum returns the digest of a checkpoint, which o names.
func (l Prepared) checksum(ctx context.Context, c *weights.Checkpoint, o config.Options, was []weights.FileState,
) (sum [sha256.Size]byte, err error) {
	if l.Hardware.Packed { // the device has a copy, and the files are closed
		if c, err = openWeights(o); err != nil {
			return sum, err
		}
		defer c.Close()
		c.DropMetadata() // reading takes a minute or more
	}
	err = atLowPriority(func() (err error) {
		sum, err = c.Checksum(ctx, was, checksumRate)
		return err
	})
	return sum, err
}

// watch returns a watch of the mapped files of all weights, or nil.
func (l Prepared) watch() *weights.Watch {
	if l.draft == nil {
		return l.weights.Watch()
	}
	return weights.Watching(l.weights, l.draft.tensors)
}

func openWeights(o config.Options) (*weights.Checkpoint, error) {
	files, _, err := ModelFiles(o)
	if err != nil {
		return nil, err
	}
	return weights.Open(files)
}

// atLowPriority runs fn on a thread of its own that gives way to all others. The thread ends with it.
func atLowPriority(fn func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()                                     // and never unlocks: Go then ends the thread
		_ = unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), 19) // without it the rate is still bounded
		done <- fn()
	}()
	return <-done
}
