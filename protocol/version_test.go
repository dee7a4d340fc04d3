package protocol

import (
	"slices"
	"strings"
	"testing"
)

// required lists the required fields of version 1, map by map. Later releases keep these
// lines: removing a field breaks peers that read it, and adding one breaks peers that do
// not send it. Added fields are marked omitempty and don't appear here; an added map gets
// a line of its own.
var required = map[string]string{
	"client": `
cache: type
cancel: type id
embed: type id
generate.format:
generate.logit_bias: token bias
generate.messages.tool_calls: name arguments
generate.messages: role content
generate.template:
generate: type id
hello: type version
sleep: type
status: type
tokenize: type text
`,
	"generator": `
cached.tiers: tier pages tokens bytes
cached: type scope page_tokens dropped tiers
done.graphs: precaptured rolled padded eager
done.timing: queue_ms prefill_ms ttft_ms total_ms
done.usage: prompt_tokens completion_tokens
done: type id finish_reason usage timing graphs
embedding.graphs: precaptured rolled padded eager
embedding.timing: queue_ms prefill_ms ttft_ms total_ms
embedding.usage: prompt_tokens completion_tokens
embedding: type id vector usage timing graphs
error: type code message
sleeping: type
status.cache: scope requests hits prompt_tokens cached_tokens
status.chat_defaults: temperature top_k top_p min_p repeat_penalty
status.disk: state bytes max_bytes pages hits read written errors
status.drafts.counts: drafts steps drafted accepted
status.drafts: drafter tokens
status.embeddings: dimensions least normalized
status.failure: code message
status.formats: state open restarts
status.graphs: live max_graphs bytes budget precaptured rolled evicted failed refused exact padded eager wishes roller
status.kv: page_tokens pages used bytes
status.limits: context max_batch vocab prompt_bytes frame requests connections queue
status.machine: name driver memory_used memory_total
status.memory: kind planned used
status.requests: running waiting finished cancelled failed refused
status.reserve: places pages tokens
status.shape: layers hidden inner heads kv_heads head_dim weight_bytes
status.steps.graphs: precaptured rolled padded eager
status.steps: prefill decode tokens graphs
status: type state version model device pid uptime_s progress connections requests kv steps limits
token.calls: index
token.top: token text logprob
token: type id index token text
tokens: type tokens
welcome.embeddings: dimensions least normalized
welcome.limits: context max_batch vocab prompt_bytes frame requests connections queue
welcome: type version model limits
`}

// TestRequiredFieldsStayTheSame: messages of older peers of the same version still decode.
func TestRequiredFieldsStayTheSame(t *testing.T) {
	for from, forms := range map[string]map[string]form{"client": requests, "generator": replies} {
		var lines []string
		for name, f := range forms {
			lines = append(lines, requiredOf(name, f.schema)...)
		}
		slices.Sort(lines)
		if got := "\n" + strings.Join(lines, "\n") + "\n"; got != required[from] {
			t.Errorf("the required fields from a %s have changed, at %q", from, firstDifference(got, required[from]))
		}
	}
}

// requiredOf returns the lines of a map and of the maps in it.
func requiredOf(path string, s *schema) []string {
	for s.elem != nil {
		s = s.elem
	}
	if s.kind != kindMap {
		return nil
	}
	line, lines := path+":", []string{}
	for _, f := range s.fields {
		if !f.optional {
			line += " " + f.name
		}
		lines = append(lines, requiredOf(path+"."+f.name, f)...)
	}
	return append(lines, line)
}

// TestFieldsLeftOut: required fields can't be left out, and all others can.
func TestFieldsLeftOut(t *testing.T) {
	for _, g := range goldens {
		if g.msg == nil {
			continue
		}
		body := g.frame(t)[headerBytes:]
		w := &walker{body}
		for range w.next().n {
			field := string(w.str(w.next()))
			w.skip()
			_, err := g.decode(without(body, field))
			if mustCome(g, field) != (code(err) == CodeBadMessage) {
				t.Errorf("%s without %s: %v", g.name, field, err)
			}
		}
	}
}

// mustCome reports whether required contains a field.
func mustCome(g golden, field string) bool {
	name, _, _ := strings.Cut(g.name, "-")
	for line := range strings.Lines(required[g.from]) {
		typ, fields, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		if typ == name && slices.Contains(strings.Fields(fields), field) {
			return true
		}
	}
	return false
}
