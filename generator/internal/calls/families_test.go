package calls

import (
	"encoding/json"
	"os"
	"testing"
)

// The templates of the families, which package jinja compares with Jinja2, show their forms.
func TestFormsOfFamilies(t *testing.T) {
	data, err := os.ReadFile("../jinja/testdata/vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	var v struct{ Families map[string]string }
	if err := json.Unmarshal(data, &v); err != nil {
		t.Fatal(err)
	}
	think := func(f Form) Form { f.Begin, f.End = "<think>", "</think>"; return f }
	for family, want := range map[string]Form{
		"gemma2": {}, "gemma3": {}, "olmo2": {}, "deepseek2": {}, "mixtral": {},
		"gemma4":          {Family: Gemma, Tools: true, Begin: thoughtBegin, End: "<channel|>", Title: thoughtTitle},
		"granite3":        think(Form{Family: Piped, Tools: true, List: true}),
		"granite4":        {Family: Tagged, Tools: true},
		"smollm3":         think(Form{Family: Tagged, Tools: true}),
		"deepseek3":       think(Form{}), // shows no tools, though it has calls
		"phi4.mini":       {Family: Piped, Tools: true, List: true},
		"phi4.mini.tools": {Family: Piped, Tools: true, List: true},
		"mistral.nemo":    {Family: Mistral, Tools: true, List: true},
		"mistral.small":   {Family: Mistral, Tools: true, List: true},
		"ministral3":      {Family: Mistral, Tools: true},
		"glm4.0414":       {Family: Lined, Tools: true},
		"olmo3":           {Tools: true}, // Calls stay text: Python within <function_calls>.
	} {
		if got := FormOf(v.Families[family]); got != want || v.Families[family] == "" {
			t.Errorf("%s: %+v, wants %+v", family, got, want)
		}
	}
}
