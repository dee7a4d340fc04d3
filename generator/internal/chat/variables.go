package chat

import (
	"fmt"
	"slices"
	"strings"

	"reel.internal/reel/generator/internal/jinja"
)

// reserved are the variables that a template gets from the generator.
var reserved = []string{"messages", "tools", "documents", "add_generation_prompt", "additional_special_tokens"}

// CheckVariables returns an error that names the first of names that a request may not set:
// those of the generator's own variables, of special tokens (bos_token and all others that end
// so), and of Jinja2's functions, filters and tests.
func CheckVariables(names []string) error {
	known := append(jinja.Names(), reserved...)
	for _, name := range names {
		if slices.Contains(known, name) || strings.HasSuffix(name, "_token") {
			return fmt.Errorf("%.100q belongs to the generator or to Jinja2", name)
		}
	}
	return nil
}
