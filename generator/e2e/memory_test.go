//go:build linux

package e2e

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"reel.internal/reel/protocol"
)

// sparse makes a checkpoint of half a gigabyte of zeros, in a sparse file, and returns its directory.
func sparse(t *testing.T) string {
	t.Helper()
	dir, _ := zeros(t, 1024, 4096, 16, 16, 8, 64, 32768)
	return dir
}

// zeros makes a checkpoint of zeros without a tokenizer, in a sparse file. It returns its directory, and the
// offset of the weights in model.safetensors.
func zeros(t *testing.T, hidden, inner, layers, heads, kvHeads, headDim, vocab int) (dir string, at int) {
	t.Helper()
	dir = tempDir(t)
	config := fmt.Sprintf(`{"model_type":"llama","hidden_size":%d,"intermediate_size":%d,"num_hidden_layers":%d,
		"num_attention_heads":%d,"num_key_value_heads":%d,"head_dim":%d,"vocab_size":%d,"max_position_embeddings":2048,
		"rms_norm_eps":1e-5,"rope_theta":10000,"eos_token_id":1,"tie_word_embeddings":true}`,
		hidden, inner, layers, heads, kvHeads, headDim, vocab)
	header, end := map[string]any{}, 0
	add := func(name string, shape ...int) {
		begin, elements := end, 1
		for _, n := range shape {
			elements *= n
		}
		end += 2 * elements
		header[name] = map[string]any{"dtype": "BF16", "shape": shape, "data_offsets": []int{begin, end}}
	}
	add("model.embed_tokens.weight", vocab, hidden)
	add("model.norm.weight", hidden)
	for i := range layers {
		prefix := fmt.Sprintf("model.layers.%d.", i)
		add(prefix+"input_layernorm.weight", hidden)
		add(prefix+"post_attention_layernorm.weight", hidden)
		add(prefix+"self_attn.q_proj.weight", heads*headDim, hidden)
		add(prefix+"self_attn.k_proj.weight", kvHeads*headDim, hidden)
		add(prefix+"self_attn.v_proj.weight", kvHeads*headDim, hidden)
		add(prefix+"self_attn.o_proj.weight", hidden, heads*headDim)
		add(prefix+"mlp.gate_proj.weight", inner, hidden)
		add(prefix+"mlp.up_proj.weight", inner, hidden)
		add(prefix+"mlp.down_proj.weight", hidden, inner)
	}
	text, err := json.Marshal(header)
	text = append(text, strings.Repeat(" ", -len(text)&7)...) // tensors start at a multiple of 8
	file := filepath.Join(dir, "model.safetensors")
	must(t, errors.Join(err, os.WriteFile(filepath.Join(dir, "config.json"), []byte(config), 0o644),
		os.WriteFile(file, append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text...), 0o644),
		os.Truncate(file, int64(8+len(text)+end))))
	return dir, 8 + len(text)
}

// confined runs a generator from a shell, after the command narrow, which sets a limit. It returns "serves", or the
// exit code and the code of the failure that the generator left beside its socket.
func confined(t *testing.T, narrow string, args ...string) string {
	t.Helper()
	socket := filepath.Join(tempDir(t), "g.sock")
	args = append([]string{"--socket", socket, "--device", "host", "--log-level", "info"}, args...)
	p := prepare(t, "reel-generator", args...)
	p.within(narrow).start()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		select {
		case <-p.exited:
			var r protocol.Record
			if text, err := os.ReadFile(protocol.RecordPath(socket)); err == nil {
				must(t, json.Unmarshal(text, &r))
			}
			if r.Failure == nil {
				return fmt.Sprintf("%d: %.300s", p.wait(), p.stderr.String())
			}
			t.Logf("%s: %s", narrow, r.Failure.Message)
			return fmt.Sprintf("%d %s", p.wait(), r.Failure.Code)
		default:
		}
		if strings.Contains(p.stderr.String(), `"ready"`) {
			p.signal(syscall.SIGTERM)
			p.wantExit(0)
			return "serves"
		}
	}
	t.Fatalf("%s: the generator neither serves nor ends", narrow)
	return ""
}

// none is the result of confined if there is not enough memory.
const none = "78 out_of_memory"

// With limited address space or data segment the generator serves with a smaller KV pool, or ends with 78 and
// out_of_memory. Below 760 MiB of address space or 80 MiB of data, Go itself does not start.
func TestStartsUnderLimits(t *testing.T) {
	if raceEnabled {
		t.Skip("needs a build without the race detector, which takes address space of its own")
	}
	big := sparse(t)
	for _, c := range []struct {
		narrow, model, want string
	}{
		{"ulimit -v 1048576", "", "serves"}, // KiB
		{"ulimit -v 870400", "", none},
		{"ulimit -d 262144", "", "serves"},
		{"ulimit -d 131072", "", none},
		{"ulimit -d 102400", "", none},
		{"ulimit -v 2097152", big, none}, // the pool does not fit
		{"ulimit -v 1048576", big, none}, // the weights cannot be mapped
		{"ulimit -d 262144", big, none},
	} {
		if got := confined(t, c.narrow, "--model", c.model, "--precapture", "1"); got != c.want {
			t.Errorf("%s, model %q: %s, wants %s", c.narrow, c.model, got, c.want)
		}
	}
}

// The same in a cgroup of version 1 or 2. REEL_E2E_CGROUP names its directory, to which this user may write.
func TestStartsInACgroup(t *testing.T) {
	dir := os.Getenv("REEL_E2E_CGROUP")
	if dir == "" {
		t.Skip("needs a cgroup with the memory controller in REEL_E2E_CGROUP")
	}
	file := filepath.Join(dir, "memory.max")
	if _, err := os.Stat(file); err != nil {
		file = filepath.Join(dir, "memory.limit_in_bytes")
	}
	big := sparse(t)
	for _, c := range []struct {
		limit, model, want string
	}{
		{"2G", big, "serves"}, {"512M", big, none},
		{"128M", "", "serves"}, {"64M", "", none}, {"24M", "", none},
	} {
		must(t, os.WriteFile(file, []byte(c.limit), 0))
		got := confined(t, "echo $$ > "+dir+"/cgroup.procs", "--model", c.model, "--precapture", "1")
		if got != c.want {
			t.Errorf("%s, model %q: %s, wants %s", c.limit, c.model, got, c.want)
		}
	}
}
