package assembly

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"

	"reel.internal/reel/generator/internal/files"
	"reel.internal/reel/protocol"
)

const generationConfig = "generation_config.json"

// samplingNames are the values of generation_config.json that conversations have as defaults.
var samplingNames = []string{"temperature", "top_k", "top_p", "min_p", "repetition_penalty"}

// chatDefaults reads the sampling defaults of conversations from generation_config.json. A value
// that a request could not have is not used, and is named in a warning.
func chatDefaults(dir fs.FS, vocab int) (d protocol.Sampling, warnings []string) {
	d = protocol.DefaultSampling()
	raw, err := files.Read(dir, generationConfig, maxConfig)
	if errors.Is(err, fs.ErrNotExist) {
		return d, nil
	}
	var fields map[string]json.RawMessage
	if err == nil {
		err = json.Unmarshal(raw, &fields)
	}
	if err != nil {
		return d, []string{fmt.Sprintf("%s: its defaults of conversations are not used: %.300v", generationConfig, err)}
	}
	for _, name := range samplingNames {
		g, err := readSampling(name, fields[name], vocab)
		if err != nil {
			warnings = append(warnings, fmt.Sprintf("%s: %s is not used as a default of conversations: %.300v; "+
				"correct it and start the generator again", generationConfig, name, err))
			continue
		}
		p := g.ParamsWith(d)
		d = protocol.Sampling{Temperature: p.Temperature, TopK: p.TopK, TopP: p.TopP, MinP: p.MinP,
			RepeatPenalty: p.RepeatPenalty}
	}
	return d, warnings
}

// readSampling returns a request that has one of samplingNames, unless raw is missing or null. The
// bounds are a request's.
func readSampling(name string, raw json.RawMessage, vocab int) (*protocol.Generate, error) {
	g := &protocol.Generate{Tokens: protocol.TokenIDs{0}}
	if raw == nil {
		return g, nil
	}
	field := map[string]any{"temperature": &g.Temperature, "top_k": &g.TopK, "top_p": &g.TopP, "min_p": &g.MinP,
		"repetition_penalty": &g.RepeatPenalty}[name]
	if err := json.Unmarshal(raw, field); err != nil {
		return nil, err
	}
	if e := g.Validate(protocol.Limits{Context: 2, Vocab: vocab}); e != nil {
		return nil, errors.New(e.Message)
	}
	return g, nil
}
