package weights

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
)

// GGUF is a file system that holds a model as one GGUF file, or as the parts of one. [Open] asks for it.
type GGUF interface {
	fs.FS
	// GGUF returns the name of the file, or of its first part.
	GGUF() string
}

// Bounds of GGUF, beside those of safetensors. (ggml, docs/gguf.md.)
const (
	ggufMagic        = "GGUF"
	defaultAlignment = 32
	maxAlignment     = 1 << 16
	ggufRank         = 4
	maxParts         = 1 << 10
)

// ggufTypes maps the numbers of GGUF's tensor types to ours.
var ggufTypes = map[uint32]DType{0: F32, 1: F16, 2: Q4_0, 3: Q4_1, 6: Q5_0, 7: Q5_1, 8: Q8_0, 12: Q4_K, 13: Q5_K,
	14: Q6_K, 23: IQ4_XS, 30: BF16, 39: MXFP4}

// ggufRefused names types that are not served, as ggml does. (gguf: constants.py, GGMLQuantizationType.)
var ggufRefused = map[uint32]string{10: "Q2_K", 11: "Q3_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S",
	20: "IQ4_NL", 21: "IQ3_S", 22: "IQ2_S", 28: "F64", 29: "IQ1_M", 34: "TQ1_0", 35: "TQ2_0", 40: "NVFP4", 41: "Q1_0"}

// ollamaMXFP4 is MXFP4 in the first files of gpt-oss that Ollama wrote, whose architecture is ollamaGptOss. A type of
// ggml had the number before there were GGUF files. (Ollama: fs/ggml/type.go, ml/backend/ggml/ggml.go.)
const (
	ollamaMXFP4  = 4
	ollamaGptOss = "gptoss"
)

// refusedType names a type that is not served.
func refusedType(number uint32) string {
	return cmp.Or(ggufRefused[number], fmt.Sprintf("GGUF type %d", number))
}

// addGGUF opens a GGUF file with all its parts.
func (c *Checkpoint) addGGUF(fsys fs.FS, name string) error {
	first, err := c.addPart(fsys, name)
	if err != nil {
		return err
	}
	c.gguf, c.metadata = name, first
	parts, split := first.Uint("split.count")
	if !split || parts == 1 {
		return nil
	}
	names, err := partNames(name, parts)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	for i := range names {
		m := first
		if i > 0 {
			if m, err = c.addPart(fsys, names[i]); errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("%w: %s is the first of %d parts: put all of them beside it", err, name, parts)
			}
			if err != nil {
				return err
			}
		}
		no, ok := m.Uint("split.no")
		if count, _ := m.Uint("split.count"); !ok || no != uint64(i) || count != parts {
			return fmt.Errorf("%s: %w: it is not part %d of %d", names[i], ErrIndex, i+1, parts)
		}
	}
	if n, ok := first.Uint("split.tensors.count"); ok && n != uint64(len(c.tensors)) {
		return fmt.Errorf("%s: %w: it counts %d tensors, and the parts hold %d", name, ErrIndex, n, len(c.tensors))
	}
	return nil
}

var partName = regexp.MustCompile(`^(.*)-00001-of-(\d{5})\.gguf$`)

// partNames returns the names of all parts of a file, first being the name of the first one.
func partNames(first string, parts uint64) ([]string, error) {
	m := partName.FindStringSubmatch(first)
	switch {
	case parts > maxParts:
		return nil, fmt.Errorf("%w: %d parts, at most %d are allowed", ErrTooLarge, parts, maxParts)
	case m == nil || m[2] != fmt.Sprintf("%05d", parts):
		return nil, fmt.Errorf("%w: it is one of %d parts: give the first, whose name ends in -00001-of-%05d.gguf",
			ErrIndex, parts, parts)
	}
	names := make([]string, parts)
	for i := range names {
		names[i] = fmt.Sprintf("%s-%05d-of-%s.gguf", m[1], i+1, m[2])
	}
	return names, nil
}

// addPart opens one GGUF file, adds its tensors to c and returns its metadata.
func (c *Checkpoint) addPart(fsys fs.FS, name string) (Metadata, error) {
	f, err := openFile(fsys, name)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	c.files = append(c.files, f)
	opened(name)
	metadata, tensors, header, err := parseGGUF(f.data, maxTensors-len(c.tensors))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	f.header = f.data[:header]
	f.setMiddles(tensors)
	for i := range tensors {
		if _, twice := c.tensors[tensors[i].Name]; twice {
			return nil, fmt.Errorf("%s: tensor %.80q: %w: the name occurs twice", name, tensors[i].Name, ErrHeader)
		}
		tensors[i].File, tensors[i].mapped = name, f.mapped != nil
		c.tensors[tensors[i].Name] = tensors[i]
	}
	return metadata, nil
}

// parseGGUF returns the metadata and the tensors of a file, and the length of its header. More tensors than limit
// are an error.
func parseGGUF(data []byte, limit int) (m Metadata, tensors []Tensor, header int, err error) {
	c := &cursor{data: data}
	if magic := c.take(4); magic != nil && string(magic) != ggufMagic {
		return nil, nil, 0, fmt.Errorf("%w: it does not begin with GGUF", ErrHeader)
	}
	if version := c.u32(); c.err == nil && version != 2 && version != 3 { // 3 added big-endian files only
		return nil, nil, 0, fmt.Errorf("%w: GGUF version %d, this build reads little-endian 2 and 3", ErrHeader, version)
	}
	count, pairs := c.u64(), c.u64()
	m = c.metadata(pairs)
	alignment, err := m.alignment()
	if c.err != nil || err != nil {
		return nil, nil, 0, errors.Join(c.err, err)
	}
	if count > uint64(limit) {
		return nil, nil, 0, fmt.Errorf("%w: %d tensors, at most %d are allowed", ErrTooLarge, count, maxTensors)
	}
	var list []rangedTensor
	arch, _ := m.String("general.architecture")
	for i := uint64(0); i < count && c.err == nil; i++ {
		list = append(list, c.tensor(alignment, arch == ollamaGptOss))
	}
	if c.err != nil {
		return nil, nil, 0, c.err
	}
	body := data[min(padded(int64(c.at), alignment), int64(len(data))):]
	tensors, err = place(list, body, alignment)
	return m, tensors, c.at, err
}

// alignment returns the alignment of the tensors in bytes.
func (m Metadata) alignment() (int64, error) {
	const key, wants = "general.alignment", "wants a multiple of 8 up to"
	v, set := m[key]
	if !set {
		return defaultAlignment, nil
	}
	n, ok := m.Uint(key)
	if _, whole := v.integer(v.raw); v.isArray || !whole {
		return 0, fmt.Errorf("%w: %s has a value of type %s, %s %d", ErrHeader, key, v.typeName(), wants, maxAlignment)
	}
	if !ok { // it is negative
		return 0, fmt.Errorf("%w: %s is %d, %s %d", ErrHeader, key, int64(n), wants, maxAlignment)
	}
	if n == 0 || n > maxAlignment || n%8 != 0 {
		return 0, fmt.Errorf("%w: %s is %d, %s %d", ErrHeader, key, n, wants, maxAlignment)
	}
	return int64(n), nil
}

// padded returns the least multiple of alignment from n on.
func padded(n, alignment int64) int64 { return (n + alignment - 1) / alignment * alignment }

// tensor reads and checks the description of a tensor, which may be MXFP4 with the number of Ollama's.
func (c *cursor) tensor(alignment int64, ollama bool) (p rangedTensor) {
	p.Name = c.name()
	rank := c.u32()
	if rank < 1 || rank > ggufRank {
		c.fail(ErrTooLarge, "%d dimensions, wants 1 to %d", rank, ggufRank)
	}
	size, ok := uint64(1), true
	for range min(rank, ggufRank) {
		n := c.u64()
		p.Shape = append(p.Shape, int(n))
		size, ok = multiply(size, n, ok)
		ok = ok && n > 0 && n < 1<<48
	}
	number := c.u32()
	begin := c.u64()
	p.DType, p.Adjacent = ggufTypes[number], ollama && number == ollamaMXFP4
	if p.Adjacent {
		p.DType = MXFP4
	}
	if p.DType == 0 {
		c.fail(ErrDType, "%s: take a file in Q4_K_M, Q5_K_M, Q6_K or Q8_0", refusedType(number))
	}
	elements, bytes := p.DType.Block()
	if ok = ok && size < 1<<48; c.err == nil && (!ok || p.Shape[0]%elements != 0) {
		c.fail(ErrShape, "%s%v", p.DType, p.Shape)
	}
	if begin >= 1<<62 || begin%uint64(alignment) != 0 {
		c.fail(ErrRange, "it begins at byte %d, wants a multiple of %d", begin, alignment)
	}
	if c.err != nil {
		c.err = fmt.Errorf("tensor %.80q: %w", p.Name, c.err)
		return p
	}
	slices.Reverse(p.Shape) // the file begins with the number of columns
	p.begin, p.end = int64(begin), int64(begin)+int64(size)/int64(elements)*int64(bytes)
	return p
}

// place returns the tensors with their data. Each must begin at the first multiple of alignment after the one before
// it, and no more than padding may follow the last.
func place(list []rangedTensor, body []byte, alignment int64) ([]Tensor, error) {
	slices.SortFunc(list, func(a, b rangedTensor) int { return int(min(max(a.begin-b.begin, -1), 1)) })
	tensors, at, end := make([]Tensor, len(list)), int64(0), int64(0)
	for i, p := range list {
		if p.begin != at {
			return nil, fmt.Errorf("tensor %.80q: %w: it begins at byte %d, wants %d, after the one before it",
				p.Name, ErrRange, p.begin, at)
		}
		if p.end > int64(len(body)) {
			return nil, fmt.Errorf("tensor %.80q: %w: after the header the tensor needs %d bytes and %d are there: "+
				"download the file again", p.Name, ErrTruncated, p.end, len(body))
		}
		tensors[i] = p.Tensor
		tensors[i].Data = body[p.begin:p.end:p.end]
		at, end = padded(p.end, alignment), p.end
	}
	if int64(len(body)) > padded(end, alignment) {
		return nil, fmt.Errorf("%w: after the header the tensors take %d bytes and %d are there", ErrRange, end,
			len(body))
	}
	return tensors, nil
}
