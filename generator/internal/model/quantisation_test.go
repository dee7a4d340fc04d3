package model

import (
	"errors"
	"strings"
	"testing"
)

// refusals are quantised checkpoints that are not served, by quantization_config, each with what the error names.
var refusals = [][2]string{
	{`[]`, "no object"},
	{`{}`, `quant_method is ""`},
	{`{"bits":4}`, `quant_method is ""`},
	{`{"quant_method":7}`, `quant_method is ""`},
	{`{"quant_method":"bitsandbytes","load_in_4bit":true,"bnb_4bit_quant_type":"nf4"}`, `"bitsandbytes"`},
	{`{"quant_method":"modelopt","quant_algo":"NVFP4"}`, `"modelopt"`},
	{`{"quant_method":"hqq"}`, `"hqq"`}, {`{"quant_method":"aqlm"}`, `"aqlm"`}, {`{"quant_method":"eetq"}`, `"eetq"`},
	{`{"quant_method":"mxfp4"}`, `"mxfp4"`}, {`{"quant_method":"torchao"}`, `"torchao"`},
	{`{"quant_method":"auto-round","bits":4,"packing_format":"auto_round:auto_gptq"}`, `"auto-round"`},

	{`{"quant_method":"gptq"}`, "bits is 0"},
	{`{"quant_method":"gptq","bits":"4"}`, "bits"},
	{`{"quant_method":"gptq","bits":8,"group_size":128}`, "bits is 8"},
	{`{"quant_method":"gptq","bits":3,"group_size":128}`, "bits is 3"},
	{`{"quant_method":"gptq","bits":4}`, "group_size is missing"},
	{`{"quant_method":"gptq","bits":4,"group_size":0}`, "group_size is 0"},
	{`{"quant_method":"gptq","bits":4,"group_size":-2}`, "group_size is -2"},
	{`{"quant_method":"gptq","bits":4,"group_size":9223372036854775807}`, "group_size is 9223372036854775807"},
	{`{"quant_method":"gptq","bits":4,"group_size":1e99}`, "group_size"},
	{`{"quant_method":"gptq","bits":4,"group_size":128,"checkpoint_format":"marlin"}`, `"marlin"`},
	{`{"quant_method":"gptq","bits":4,"group_size":128,"format":"gptq_p"}`, `"gptq_p"`},
	{`{"quant_method":"gptq","bits":4,"group_size":128,"is_marlin_format":true}`, "is_marlin_format"},
	{`{"quant_method":"gptq","bits":4,"group_size":128,"pack_dtype":"int64"}`, "pack_dtype"},
	{`{"quant_method":"gptq","bits":4,"group_size":128,"adapter":{"rank":8}}`, "adapter"},

	{`{"quant_method":"awq","bits":4,"group_size":128,"version":"gemv"}`, `"gemv"`},
	{`{"quant_method":"awq","bits":4,"group_size":128,"version":"marlin"}`, `"marlin"`},
	{`{"quant_method":"awq","bits":4,"group_size":128,"format":"gemv_fast"}`, `"gemv_fast"`},
	{`{"quant_method":"awq","bits":4,"group_size":128,"checkpoint_format":"gemv"}`, "checkpoint_format"},
	{`{"quant_method":"awq","bits":4,"group_size":128,"zero_point":false}`, "zero_point is false"},
	{`{"quant_method":"awq","bits":8,"group_size":128}`, "bits is 8"},

	{`{"quant_method":"gptq","bits":4,"group_size":128,"dynamic":{"-:a":{"bits":3},"+:.*down_proj.*":{"bits":8}}}`,
		"dynamic of +:.*down_proj.* is 8 bits"},

	{`{"quant_method":"fp8","weight_block_size":[64,128]}`, "weight_block_size is [64 128]"},
	{`{"quant_method":"fp8","weight_block_size":[128]}`, "weight_block_size is [128]"},
	{`{"quant_method":"fp8","weight_block_size":[-1,0]}`, "weight_block_size is [-1 0]"},
	{`{"quant_method":"fp8","weight_block_size":[128,128],"fmt":"e5m2"}`, `"e5m2"`},
	{`{"quant_method":"fp8","new_field":1}`, "new_field"},

	{`{"quant_method":"compressed-tensors"}`, "config_groups"},
	{`{"quant_method":"compressed-tensors","config_groups":{"a":{}}}`, "config_groups.a.weights"},
	{compressed("int-quantized", `"num_bits":8,"type":"int","strategy":"channel"`), "8-bit int"},
	{compressed("pack-quantized", `"num_bits":8,"type":"int","strategy":"channel"`), "8-bit int"},
	{compressed("pack-quantized", `"num_bits":4,"type":"int","strategy":"tensor"`), "4-bit int"},
	{compressed("pack-quantized", `"num_bits":4,"type":"int","strategy":"group"`), "group_size is missing"},
	{compressed("pack-quantized", `"num_bits":4,"type":"int","strategy":"group","group_size":0`), "group_size is 0"},
	{compressed("nvfp4-pack-quantized", `"num_bits":4,"type":"float","strategy":"tensor_group","group_size":16`),
		"nvfp4-pack-quantized"},
	{compressed("marlin-24", `"num_bits":4,"type":"int","strategy":"channel"`), "marlin-24"},
	{compressed("float-quantized", `"num_bits":8,"type":"float","strategy":"group","group_size":128`), `"group"`},
	{compressed("float-quantized", `"num_bits":8,"type":"float","strategy":"block","block_structure":[64,64]`), "[64 64]"},
	{compressed("float-quantized", `"num_bits":8,"type":"float","strategy":"block","block_structure":"64x64"`), "[64 64]"},
	{compressed("float-quantized", `"num_bits":8,"type":"float","strategy":"block","block_structure":"128"`), "[128]"},
	{compressed("float-quantized", `"num_bits":8,"type":"float","strategy":"block","block_structure":"ax"`),
		`block_structure is "ax"`},
	{`{"quant_method":"gptq","bits":4,"group_size":128,"data_type":"mx_fp"}`, `data_type is "mx_fp"`},
	{strings.Replace(compressed("float-quantized", `"num_bits":8,"type":"float","strategy":"channel"`), `{"quant`,
		`{"sparsity_config":{"format":"sparse-24-bitmask"},"quant`, 1), "sparse-24-bitmask"},
	{strings.Replace(compressed("float-quantized", `"num_bits":8,"type":"float","strategy":"channel"`), `{"quant`,
		`{"transform_config":{"config_groups":{"u":{}}},"quant`, 1), "transform_config"},
}

func compressed(format, args string) string {
	return `{"quant_method":"compressed-tensors","format":"` + format +
		`","config_groups":{"group_0":{"targets":["Linear"],"weights":{` + args + `}}}}`
}

// Each is refused by name, with what to take instead.
func TestQuantisationIsRefused(t *testing.T) {
	for _, r := range refusals {
		_, err := ParseConfig(with("llama-2-7b", `"quantization_config":`+r[0]), nil)
		if !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), "quantization_config") ||
			!strings.Contains(err.Error(), r[1]) {
			t.Errorf("%s: %v, wants a refusal that names %s", r[0], err, r[1])
		}
		if !strings.Contains(err.Error(), "unknown field") && !strings.Contains(err.Error(), "hf download") {
			t.Errorf("%s: %v does not say what to take instead", r[0], err)
		}
	}
}

// What published checkpoints say is read.
func TestQuantisationIsRead(t *testing.T) {
	for text, want := range map[string]Quantisation{
		`null`: {},
		`{"quant_method":"fp8","activation_scheme":"dynamic","fmt":"e4m3","weight_block_size":[128,128],
			"modules_to_not_convert":["lm_head"],"scale_fmt":"ue8m0"}`: {Method: "fp8", Side: 128},
		`{"quant_method":"fp8","activation_scheme":"static"}`: {Method: "fp8"},
		`{"quant_method":"awq","bits":4,"group_size":64,"version":"GEMM","zero_point":true,"backend":"autoawq",
			"do_fuse":false,"exllama_config":null}`: {Method: "awq", Group: 64},
		`{"quant_method":"awq","method":"awq","format":"gemm","checkpoint_format":"gemm","bits":4,"group_size":128,
			"desc_act":false,"sym":false,"pack_dtype":"int32","meta":{"quantizer":["gptqmodel:5.6.0"]}}`: {Method: "awq",
			Group: 128},
		`{"quant_method":"gptq","bits":4,"group_size":-1,"damp_percent":0.1,"desc_act":true,"sym":true,
			"true_sequential":true,"model_name_or_path":null,"model_file_base_name":"model"}`: {Method: "gptq", Group: -1,
			ZerosLessOne: true, Symmetric: true},
		`{"quant_method":"gptq","bits":4,"group_size":128,"sym":false,"checkpoint_format":"gptq_v2","lm_head":true}`: {
			Method: "gptq", Group: 128},
		`{"quant_method":"gptq","bits":4,"group_size":128,"dynamic":null}`: {Method: "gptq", Group: 128, ZerosLessOne: true,
			Symmetric: true},
		`{"quant_method":"gptq","bits":4,"group_size":128,"dynamic":{"-:.*mlp.gate.*":{},"b":false,"+:.*q.*":{"bits":4,
			"desc_act":true}}}`: {Method: "gptq", Group: 128, ZerosLessOne: true, Symmetric: true},
		`{"quant_method":"gptq","bits":4,"group_size":128,"dynamic":{"+:.*down_proj.*":{"group_size":64}}}`: {
			Method: "gptq", ZerosLessOne: true, Symmetric: true},
		`{"quant_method":"gptq","bits":4,"group_size":128,"dynamic":{".*down_proj.*":{"sym":false}}}`: {
			Method: "gptq", Group: 128, ZerosLessOne: true},
		compressed("naive-quantized", `"num_bits":8,"type":"float","strategy":"tensor","dynamic":false`): {
			Method: "compressed-tensors"},
		compressed("float-quantized", `"num_bits":8,"type":"float","strategy":"block","block_structure":[128,128]`): {
			Method: "compressed-tensors", Side: 128},
		compressed("float-quantized", `"num_bits":8,"type":"float","strategy":"block","block_structure":"128x128"`): {
			Method: "compressed-tensors", Side: 128},
		compressed("pack-quantized", `"num_bits":4,"type":"int","strategy":"channel","block_structure":null`): {
			Method: "compressed-tensors", Group: -1},
		`{"quant_method":"gptq","bits":4,"group_size":128,"sym":true,"data_type":"int","provider":"auto-round",
			"autoround_version":"0.9.0","iters":1000,"nsamples":512,"seqlen":512,"low_gpu_mem_usage":true,"lr":0.001,
			"block_name_to_quantize":"model.layers"}`: {Method: "gptq", Group: 128, ZerosLessOne: true, Symmetric: true},
		`{"quant_method":"compressed-tensors","format":"mixed-precision","version":"0.12.2","config_groups":{
			"group_0":{"format":"float-quantized","weights":{"num_bits":8,"type":"float","strategy":"channel"}},
			"group_1":{"format":"pack-quantized","weights":{"num_bits":4,"type":"int","strategy":"group","group_size":32}}},
			"sparsity_config":{},"transform_config":{}}`: {Method: "compressed-tensors"},
	} {
		c, err := ParseConfig(with("llama-2-7b", `"quantization_config":`+text), nil)
		if err != nil || c.Quantisation != want {
			t.Errorf("%s: %+v, %v, wants %+v", text, c.Quantisation, err, want)
		}
	}
}
