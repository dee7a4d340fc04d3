package model

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// Quantisation is what config.json says about quantised matrices. Which matrices are quantised and the size of their
// groups follow from the tensors, so lists such as ignore and modules_to_not_convert are not read. Only weights are
// quantised here: activations stay floats where a config asks for 8 bits.
type Quantisation struct {
	Method string // quant_method; empty: nothing is quantised
	// Side is the number of rows, and of columns, that share a scale in a matrix of float8 with a grid of scales.
	Side int
	// Group is the number of columns that share a scale of four-bit codes; -1: all; 0: it is not said, or differs.
	Group int
	// ZerosLessOne and Symmetric are fields of [weights.Int4], for GPTQ.
	ZerosLessOne, Symmetric bool
}

// The methods that are served, mxfp4 of experts alone.
const (
	methodCompressed = "compressed-tensors"
	methodFloat8     = "fp8"
	methodAWQ        = "awq"
	methodGPTQ       = "gptq"
	methodMXFP4      = "mxfp4"
)

// float8Side is the side of the tiles that share a scale.
const float8Side = 128

// quantisationFile is quantization_config, of all methods.
type quantisationFile struct {
	Method string `json:"quant_method"`
	Format string `json:"format"` // of compressed-tensors, AWQ and GPTQ

	Groups     map[string]quantisedGroup `json:"config_groups"`
	Sparsity   sparsityFile              `json:"sparsity_config"`
	Transforms map[string]any            `json:"transform_config"`

	BlockSize []int  `json:"weight_block_size"`
	Float     string `json:"fmt"`

	Bits       int    `json:"bits"`
	GroupSize  *int   `json:"group_size"`
	ZeroPoint  *bool  `json:"zero_point"`
	Version    string `json:"version"` // the layout of AWQ; of compressed-tensors that of the package
	Symmetric  *bool  `json:"sym"`
	Checkpoint string `json:"checkpoint_format"`
	Marlin     bool   `json:"is_marlin_format"`
	PackType   string `json:"pack_dtype"`
	DataType   string `json:"data_type"` // of AutoRound, which writes these methods
	// Dynamic has the fields that differ in some modules, by a pattern of their names; "-:" begins the pattern of modules
	// that are not quantised.
	Dynamic map[string]json.RawMessage `json:"dynamic"`
}

type sparsityFile struct {
	Format string `json:"format"`
}

// quantisedGroup is the scheme of the modules that its targets name, which are not read.
type quantisedGroup struct {
	Format  string         `json:"format"`
	Weights *quantisedArgs `json:"weights"`
}

type quantisedArgs struct {
	Bits      int    `json:"num_bits"`
	Type      string `json:"type"`
	Strategy  string `json:"strategy"`
	GroupSize *int   `json:"group_size"`
	Block     sides  `json:"block_structure"`
}

// sides are a JSON list of numbers, a text such as "128x128", or null.
type sides []int

func (s *sides) UnmarshalJSON(b []byte) error {
	var text string
	if string(b) == "null" || json.Unmarshal(b, &text) != nil {
		return json.Unmarshal(b, (*[]int)(s))
	}
	for side := range strings.SplitSeq(text, "x") {
		n, err := strconv.Atoi(side)
		if err != nil {
			return fmt.Errorf("block_structure is %.40q", text)
		}
		*s = append(*s, n)
	}
	return nil
}

// inertQuantisation lists the fields of quantization_config that change neither values nor layout: lists of modules,
// how the checkpoint was made, and how other programs run it. (transformers: utils/quantization_config.py;
// compressed-tensors: quantization/quant_config.py; GPTQModel: quantization/config.py; AutoRound: export/utils.py.)
var inertQuantisation = []string{
	"ignore", "ignored_layers", "modules_to_not_convert", "modules_to_convert", "lm_head",
	"modules_in_block_to_quantize", "block_name_to_quantize", "module_name_preceding_first_block",
	"quantization_status", "global_compression_ratio", "kv_cache_scheme", "run_compressed", "dequantize",
	"use_optimized_inference", "activation_scheme", "scale_fmt", "expert_dtype",
	"desc_act", "act_group_aware", "static_groups", "true_sequential", "damp_percent", "damp_auto_increment", "mse",
	"dataset", "tokenizer", "batch_size", "model_seqlen", "max_input_length", "pad_token_id", "cache_block_outputs",
	"meta", "method", "quantizer", "model_name_or_path", "model_file_base_name", "provider",
	"backend", "use_exllama", "disable_exllama", "exllama_config", "use_cuda_fp16", "do_fuse", "modules_to_fuse",
	"fuse_max_seq_len", "pack_impl", "hyb_act", "parallel_packing", "offload_to_disk", "offload_to_disk_path",
	"autoround_version", "iters", "lr", "minmax_lr", "nsamples", "seqlen", "amp", "scale_dtype", "low_gpu_mem_usage",
	"gradient_accumulate_steps", "enable_minmax_tuning", "enable_norm_bias_tuning", "enable_quanted_input",
	"to_quant_block_names",
}

func inertQuantised(name string, _ json.RawMessage) bool {
	return slices.Contains(inertQuantisation, name)
}

// refuseQuantised returns ErrUnsupported for quantised weights, and says what to take instead.
func refuseQuantised(format string, args ...any) error {
	return fmt.Errorf("%w: config.json: quantization_config: %s. This build serves compressed-tensors (FP8, four-bit "+
		"integers, MXFP4), fp8 in blocks of %d, awq (gemm) and gptq, both of 4 bits: take the model in one of these, as "+
		"GGUF, or in BF16, with hf download ORG/NAME, then give --model ORG/NAME",
		ErrUnsupported, fmt.Sprintf(format, args...), float8Side)
}

// readQuantisation reads quantization_config, which may be absent or null. Errors: ErrUnsupported.
func readQuantisation(raw json.RawMessage) (q Quantisation, err error) {
	if len(raw) == 0 || string(raw) == "null" {
		return q, nil
	}
	var f quantisationFile
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil {
		return q, refuseQuantised("it is no object")
	}
	failed := json.Unmarshal(raw, &f)
	methods := map[string]func(*quantisationFile, *Quantisation) error{methodCompressed: (*quantisationFile).compressed,
		methodFloat8: (*quantisationFile).float8, methodAWQ: (*quantisationFile).awq, methodGPTQ: (*quantisationFile).gptq,
		methodMXFP4: func(*quantisationFile, *Quantisation) error { return nil }}
	read := methods[f.Method]
	if read == nil {
		return q, refuseQuantised("quant_method is %.40q", f.Method)
	}
	if failed != nil {
		return q, refuseQuantised("quant_method is %q: %.200v", f.Method, failed)
	}
	if f.DataType != "" && f.DataType != "int" {
		return q, f.refuse("data_type", fmt.Sprintf("%q", f.DataType))
	}
	if err := read(&f, &q); err != nil {
		return Quantisation{}, err
	}
	q.Method = f.Method
	return q, refuseUnknown("config.json: quantization_config", fields, inertQuantised, reflect.TypeFor[quantisationFile]())
}

// refuse names the method and a field's value.
func (f *quantisationFile) refuse(field string, value any) error {
	return refuseQuantised("quant_method is %q, and %s is %.80s", f.Method, field, fmt.Sprint(value))
}

// compressed reads the schemes of compressed-tensors. If several groups of modules differ, their tensors tell.
func (f *quantisationFile) compressed(q *Quantisation) error {
	if s := f.Sparsity.Format; s != "" && s != "dense" {
		return f.refuse("sparsity_config.format", fmt.Sprintf("%q", s))
	}
	if len(f.Transforms) > 0 {
		return f.refuse("transform_config", "not empty")
	}
	if len(f.Groups) == 0 {
		return f.refuse("config_groups", "empty")
	}
	for i, name := range slices.Sorted(maps.Keys(f.Groups)) {
		g := f.Groups[name]
		field := "config_groups." + name
		if g.Weights == nil {
			return f.refuse(field+".weights", "missing")
		}
		if g.Format == "" {
			g.Format = f.Format
		}
		group, side, err := f.scheme(field, g.Format, g.Weights)
		if err != nil {
			return err
		}
		if i > 0 && group != q.Group {
			group = 0
		}
		q.Group, q.Side = group, max(q.Side, side)
	}
	return nil
}

// scheme checks one scheme, and returns the columns of a group and the side of a tile; 0 without.
func (f *quantisationFile) scheme(field, format string, w *quantisedArgs) (group, side int, err error) {
	describe := fmt.Sprintf("%d-bit %s in the format %q", w.Bits, w.Type, format)
	switch kind := fmt.Sprint(w.Bits, w.Type); {
	case kind == "8float" && (format == "float-quantized" || format == "naive-quantized"):
		switch {
		case w.Strategy == "block" && slices.Equal(w.Block, sides{float8Side, float8Side}):
			return 0, float8Side, nil
		case w.Strategy == "tensor" || w.Strategy == "channel":
			return 0, 0, nil
		}
		return 0, 0, f.refuse(field+".weights.strategy", fmt.Sprintf("%q with blocks of %v", w.Strategy, w.Block))
	case kind == "4float" && format == "mxfp4-pack-quantized":
		return 0, 0, nil
	case kind == "4int" && format == "pack-quantized" && w.Strategy == "channel":
		return -1, 0, nil
	case kind == "4int" && format == "pack-quantized" && w.Strategy == "group":
		group, err = f.groupSize(field+".weights.group_size", w.GroupSize)
		return group, 0, err
	}
	return 0, 0, f.refuse(field+".weights", describe)
}

// groupSize returns the columns of a group: 1 to the most columns, or -1 for all.
func (f *quantisationFile) groupSize(field string, n *int) (int, error) {
	if n == nil {
		return 0, f.refuse(field, "missing")
	}
	if *n != -1 && (*n < 1 || *n > maxDimension) {
		return 0, f.refuse(field, *n)
	}
	return *n, nil
}

// float8 reads the method fp8.
func (f *quantisationFile) float8(q *Quantisation) error {
	if f.Float != "" && f.Float != "e4m3" && f.Float != "float8_e4m3fn" {
		return f.refuse("fmt", fmt.Sprintf("%q", f.Float))
	}
	if f.BlockSize != nil && !slices.Equal(f.BlockSize, []int{float8Side, float8Side}) {
		return f.refuse("weight_block_size", f.BlockSize)
	}
	if f.BlockSize != nil {
		q.Side = float8Side
	}
	return nil
}

// fourBits reads the fields that AWQ and GPTQ share.
func (f *quantisationFile) fourBits(q *Quantisation) (err error) {
	if f.Bits != 4 {
		return f.refuse("bits", f.Bits)
	}
	if f.PackType != "" && f.PackType != "int32" {
		return f.refuse("pack_dtype", fmt.Sprintf("%q", f.PackType))
	}
	q.Group, err = f.groupSize("group_size", f.GroupSize)
	return err
}

func (f *quantisationFile) awq(q *Quantisation) error {
	for _, field := range [][2]string{{"version", f.Version}, {"format", f.Format}, {"checkpoint_format", f.Checkpoint}} {
		if v := field[1]; v != "" && v != "gemm" && v != "GEMM" {
			return f.refuse(field[0], fmt.Sprintf("%q", v))
		}
	}
	if f.ZeroPoint != nil && !*f.ZeroPoint {
		return f.refuse("zero_point", false)
	}
	return f.fourBits(q)
}

func (f *quantisationFile) gptq(q *Quantisation) error {
	for _, field := range [][2]string{{"checkpoint_format", f.Checkpoint}, {"format", f.Format}} {
		if v := field[1]; v != "" && v != "gptq" && v != "gptq_v2" {
			return f.refuse(field[0], fmt.Sprintf("%q", v))
		}
	}
	if f.Marlin {
		return f.refuse("is_marlin_format", true)
	}
	q.ZerosLessOne = f.Checkpoint != "gptq_v2" && f.Format != "gptq_v2"
	q.Symmetric = f.Symmetric == nil || *f.Symmetric
	if err := f.fourBits(q); err != nil {
		return err
	}
	return f.dynamic(q)
}

// dynamic reads what differs in some modules. If the size of groups or the symmetry does, the tensors tell.
func (f *quantisationFile) dynamic(q *Quantisation) error {
	for _, pattern := range slices.Sorted(maps.Keys(f.Dynamic)) {
		var of struct {
			Bits      *int  `json:"bits"`
			GroupSize *int  `json:"group_size"`
			Symmetric *bool `json:"sym"`
		}
		if strings.HasPrefix(pattern, "-:") || json.Unmarshal(f.Dynamic[pattern], &of) != nil {
			continue
		}
		if of.Bits != nil && *of.Bits != 4 {
			return f.refuse("dynamic of "+pattern, fmt.Sprintf("%d bits", *of.Bits))
		}
		if of.GroupSize != nil {
			q.Group = 0
		}
		if of.Symmetric != nil {
			q.Symmetric = q.Symmetric && *of.Symmetric
		}
	}
	return nil
}
