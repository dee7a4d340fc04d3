//go:build formats

package format

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"
)

// randomSchema returns a schema of keywords that can be followed, most of the time.
func randomSchema(r *rand.Rand, depth int) map[string]any {
	kinds := []func() map[string]any{
		func() map[string]any { return randomString(r) },
		func() map[string]any { return randomNumber(r) },
		func() map[string]any { return map[string]any{"type": []any{"null", "boolean"}[r.IntN(2)]} },
		func() map[string]any { return map[string]any{"enum": randomValues(r)} },
		func() map[string]any { return map[string]any{"const": randomValues(r)[0]} },
		func() map[string]any { return map[string]any{"$ref": "#/$defs/" + []string{"leaf", "tree"}[r.IntN(2)]} },
	}
	if depth > 0 {
		kinds = append(kinds,
			func() map[string]any { return randomObject(r, depth) },
			func() map[string]any { return randomObject(r, depth) },
			func() map[string]any { return randomArray(r, depth) },
			func() map[string]any {
				return map[string]any{"anyOf": []any{randomSchema(r, depth-1), randomSchema(r, depth-1)}}
			},
			func() map[string]any {
				return map[string]any{"allOf": []any{randomObject(r, depth), randomObject(r, depth)}}
			},
			func() map[string]any {
				return map[string]any{"oneOf": []any{randomString(r), randomObject(r, depth)}}
			})
	}
	return kinds[r.IntN(len(kinds))]()
}

func randomString(r *rand.Rand) map[string]any {
	s := map[string]any{"type": "string"}
	switch r.IntN(4) {
	case 0:
		s["maxLength"] = r.IntN(12)
	case 1:
		s["minLength"], s["maxLength"] = 2, 2+r.IntN(9)
	case 2:
		s["pattern"] = []string{"^[a-z]+$", "[0-9]{2}", "^a|b$", `^\w{1,5}\.\d*$`, "^é+$", "^[^a]{0,4}$"}[r.IntN(6)]
	case 3:
		s["format"] = []string{"date", "time", "ipv4", "uuid", "email", "hostname", "date-time"}[r.IntN(7)]
	}
	return s
}

func randomNumber(r *rand.Rand) map[string]any {
	s := map[string]any{"type": []any{"integer", "number"}[r.IntN(2)]}
	bound := float64(r.IntN(400)-200) / []float64{1, 1, 4, 100}[r.IntN(4)]
	if r.IntN(2) == 0 {
		s[[]string{"minimum", "exclusiveMinimum"}[r.IntN(2)]] = bound
	}
	if r.IntN(2) == 0 {
		s[[]string{"maximum", "exclusiveMaximum"}[r.IntN(2)]] = bound + float64(r.IntN(1000))
	}
	if r.IntN(4) == 0 {
		s["multipleOf"] = []float64{1, 3, 7, 0.5, 0.25}[r.IntN(5)]
	}
	return s
}

func randomValues(r *rand.Rand) (values []any) {
	all := []any{nil, true, -7, 2.5, "", "a \"b\"\n", "日本", []any{1, "x"}, map[string]any{"k": []any{}, "l": nil}}
	for _, i := range r.Perm(len(all))[:1+r.IntN(4)] {
		values = append(values, all[i])
	}
	return values
}

func randomArray(r *rand.Rand, depth int) map[string]any {
	s := map[string]any{"type": "array"}
	if r.IntN(3) > 0 {
		s["items"] = randomSchema(r, depth-1)
	}
	if r.IntN(2) == 0 {
		s["minItems"] = r.IntN(3)
	}
	if r.IntN(2) == 0 {
		s["maxItems"] = 2 + r.IntN(4)
	}
	if r.IntN(4) == 0 {
		s["prefixItems"] = []any{randomSchema(r, depth-1), randomSchema(r, 0)}
	}
	return s
}

// names are names of properties. Some have more than one spelling in JSON.
var names = []string{"a", "b", "name", "a\"b", "x\ny", "é", "/", ""}

func randomObject(r *rand.Rand, depth int) map[string]any {
	s, properties, required := map[string]any{"type": "object"}, map[string]any{}, []any{}
	for _, i := range r.Perm(len(names))[:r.IntN(5)] {
		properties[names[i]] = randomSchema(r, depth-1)
		if r.IntN(2) == 0 {
			required = append(required, names[i])
		}
	}
	s["properties"], s["required"] = properties, required
	switch r.IntN(4) {
	case 0:
		s["additionalProperties"] = false
	case 1:
		s["additionalProperties"] = randomSchema(r, 0)
	case 2:
		s["patternProperties"] = map[string]any{"^x": randomSchema(r, 0), "^[0-9]+$": randomSchema(r, 0)}
	}
	if r.IntN(6) == 0 {
		s["minProperties"] = r.IntN(3)
	}
	if r.IntN(6) == 0 {
		s["maxProperties"] = 1 + r.IntN(5)
	}
	return s
}

// Answers that are drawn at random, of random schemas, are valid.
func TestRandomSchemas(t *testing.T) {
	s := newService(t, vocabulary(2000))
	total := counts{causes: map[string]int{}}
	for seed := range uint64(600) {
		r := rand.New(rand.NewPCG(seed, 5))
		schema := randomSchema(r, 3)
		schema["$defs"] = map[string]any{
			"leaf": randomSchema(r, 0),
			"tree": map[string]any{"type": "object", "properties": map[string]any{
				"left": map[string]any{"$ref": "#/$defs/tree"}, "v": map[string]any{"type": "integer"}}, "required": []any{"v"}},
		}
		if leaf, ok := schema["$defs"].(map[string]any)["leaf"].(map[string]any); ok {
			delete(leaf, "$ref") // to itself
		}
		text, err := json.Marshal(schema)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(fmt.Sprint(seed), func(t *testing.T) { total.group(t, s, group{Schema: text}, drafts["draft2020-12"]) })
	}
	total.report(t)
	if total.followed < 400 || total.drawn < 1000 {
		t.Errorf("only %d schemas were followed, and %d answers drawn", total.followed, total.drawn)
	}
}
