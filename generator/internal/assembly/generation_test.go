package assembly

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"reel.internal/reel/generator/internal/config"
	"reel.internal/reel/protocol"
)

// The five values of generation_config.json are the defaults of conversations.
func TestChatDefaults(t *testing.T) {
	own := protocol.DefaultSampling()
	for file, want := range map[string]protocol.Sampling{
		"": own, "{}": own, `{"do_sample":true,"temperature":null,"eos_token_id":[1,2]}`: own,
		`{"temperature":0.6,"top_k":20,"top_p":0.95,"min_p":0.05,"repetition_penalty":1.05}`: {Temperature: 0.6, TopK: 20,
			TopP: 0.95, MinP: 0.05, RepeatPenalty: 1.05},
		`{"temperature":0}`: {TopP: 1, RepeatPenalty: 1},
		`{"Temperature":0}`: own,
	} {
		files := fstest.MapFS{}
		if file != "" {
			files[generationConfig] = &fstest.MapFile{Data: []byte(file)}
		}
		if got, warnings := chatDefaults(files, 100); got != want || len(warnings) > 0 {
			t.Errorf("%s: %+v, %q", file, got, warnings)
		}
	}
}

// A value that a request could not have is not used, and a warning names it. The others are used.
func TestBadChatDefaults(t *testing.T) {
	for field, cause := range map[string]string{
		`"temperature":-1`:                            "temperature is -1: it must be 0 to 100",
		`"temperature":101`:                           "temperature is 101",
		`"temperature":"0.6"`:                         "cannot unmarshal string",
		`"temperature":1e999`:                         "cannot unmarshal number",
		`"temperature":1` + strings.Repeat("0", 5000): "cannot unmarshal number",
		`"temperature":[]`:                            "cannot unmarshal array",
		`"top_k":-1`:                                  "top_k is -1: it must be 0 to 100",
		`"top_k":101`:                                 "top_k is 101",
		`"top_k":2.5`:                                 "cannot unmarshal number",
		`"top_p":0`:                                   "top_p is 0",
		`"top_p":1.5`:                                 "top_p is 1.5",
		`"min_p":2`:                                   "min_p is 2",
		`"repetition_penalty":0`:                      "repeat_penalty is 0",
		`"repetition_penalty":true`:                   "cannot unmarshal bool",
	} {
		other, want := `"min_p":0.25`, protocol.DefaultSampling()
		want.MinP = 0.25
		if strings.HasPrefix(field, `"min_p"`) {
			other, want.MinP = `"top_k":7`, 0
			want.TopK = 7
		}
		files := fstest.MapFS{generationConfig: {Data: []byte("{" + field + "," + other + "}")}}
		got, warnings := chatDefaults(files, 100)
		if got != want {
			t.Errorf("%.40s: %+v", field, got)
		}
		if len(warnings) != 1 || !strings.Contains(warnings[0], cause) || len(warnings[0]) > 500 {
			t.Errorf("%.40s: warnings %.600q", field, warnings)
		}
	}
	for _, file := range []string{"{", "[]", strings.Repeat(" ", maxConfig+1)} {
		got, warnings := chatDefaults(fstest.MapFS{generationConfig: {Data: []byte(file)}}, 100)
		if got != protocol.DefaultSampling() || len(warnings) != 1 {
			t.Errorf("%.10s: %+v, %.600q", file, got, warnings)
		}
	}
}

// A loaded model has the defaults of its directory if it has a chat template.
func TestLoadedChatDefaults(t *testing.T) {
	for name, template := range map[string]string{"chat": "x", "base": "", "broken": "{% if %}"} {
		dir := modelDir(t)
		writeFile(t, dir, generationConfig, `{"temperature":0.5,"top_p":7}`)
		if template != "" {
			writeFile(t, dir, templateFile, template)
		}
		l, err := Load(t.Context(), config.Options{Model: dir, MaxSeqLen: 64, MaxBatch: 1}, func(float64, string) {})
		if err != nil {
			t.Fatal(err)
		}
		d := l.Model.ChatDefaults
		if (d != nil) != (name == "chat") || d != nil && (d.Temperature != 0.5 || d.TopP != 1) {
			t.Errorf("%s: %+v", name, d)
		}
		if warned := strings.Contains(strings.Join(l.Warnings, " "), "top_p is 7"); warned != (template != "") {
			t.Errorf("%s: warnings %q", name, l.Warnings)
		}
		l.Engine.Stop()
		if err := l.Run(); err != nil {
			t.Error(err)
		}
	}
}

func writeFile(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
