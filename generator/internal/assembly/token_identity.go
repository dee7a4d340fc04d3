package assembly

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"io/fs"
	"runtime"
	"sync"

	"reel.internal/reel/generator/internal/chat"
	"reel.internal/reel/generator/internal/format"
	"reel.internal/reel/generator/internal/model"
	"reel.internal/reel/kernels"
	"reel.internal/reel/protocol"
)

// tokenVersion is the version of all code that decides tokens, but for [kernels.SumOrder]: tokenizers, chat templates,
// samplers, and of formats what is not in [format.Version]. Raise it if a change of them makes other tokens of the same
// request.
const tokenVersion = 5

// tokenIdentity is everything that decides the tokens of a request with a seed. Settings that change no token, such as
// the context, the batch and the cache, are no part of it.
type tokenIdentity struct {
	Version, SumOrder int
	Formats           string // what makes masks; another one is refused, so it is the same without formats
	Build             string // as in identity
	Device            string // its kind, cuda or host: the loops of all processors give the same bits
	Machine           string // name of the GPU: some orders of sums follow the number of SMs; empty on host
	KVType            kernels.DType
	PageTokens        int
	Config            model.Config      // with Context 0
	Weights           [sha256.Size]byte // of all bytes of the files, in which GGUF has the tokenizer too
	Tokenizer         [sha256.Size]byte // of tokenizer.json
	Chat              [sha256.Size]byte // of the template in use and its special tokens
	Defaults          protocol.Sampling // of conversations
}

// identifier is the identity of a served model, for clients. It is unknown until the weights have been read again.
type identifier struct {
	mu    sync.Mutex
	parts tokenIdentity
	text  string // empty while unknown
	known bool   // the weights' part
}

// tokenIdentity returns all of the identity but weights and template.
func (l Prepared) tokenIdentity() tokenIdentity {
	i := tokenIdentity{Version: tokenVersion, SumOrder: kernels.SumOrder, Formats: format.Version(),
		Build: runtime.GOARCH + " " + runtime.Version(), Device: l.Hardware.Name(), KVType: l.EngineOptions.KVType, PageTokens: l.EngineOptions.PageTokens,
		Config: l.Model.Config, Tokenizer: l.tokenizerSum, Defaults: l.chatDefaults}
	i.Config.Context = 0
	if !l.Hardware.Packed {
		i.Config.Ranks = 0 // simulated ranks give the tokens of one
	} else {
		i.Machine = l.Hardware.Machine().Name
	}
	return i
}

// setWeights sets the digest of the weights. The identity is known from then on.
func (i *identifier) setWeights(sum [sha256.Size]byte) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.parts.Weights, i.known = sum, true
	i.update()
}

// setTemplate sets the chat template in use.
func (i *identifier) setTemplate(s chat.Source) {
	text, _ := json.Marshal(s) // texts alone: it never fails
	i.mu.Lock()
	defer i.mu.Unlock()
	i.parts.Chat = sha256.Sum256(text)
	i.update()
}

func (i *identifier) update() {
	if i.known {
		i.text = i.parts.String()
	}
}

// String returns the identity, or "" while it is unknown.
func (i *identifier) String() string {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.text
}

// String returns the digest of all parts in hexadecimal digits.
func (i tokenIdentity) String() string {
	text, _ := json.Marshal(i) // numbers and texts alone: it never fails
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// tokenizerSum returns the digest of a directory's tokenizer.json.
func tokenizerSum(dir fs.FS) (sum [sha256.Size]byte, err error) {
	f, err := dir.Open("tokenizer.json")
	if err != nil {
		return sum, err
	}
	defer f.Close()
	all := sha256.New()
	_, err = io.Copy(all, f)
	return [sha256.Size]byte(all.Sum(nil)), err
}
