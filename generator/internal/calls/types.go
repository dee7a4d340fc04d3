package calls

import (
	"encoding/json"
	"strings"
)

// Types are the types of JSON that a parameter may have; 0: its schema does not say.
type Types uint8

// The types. A JSON Schema's integer is a number here.
const (
	stringType Types = 1 << iota
	numberType
	booleanType
	nullType
	arrayType
	objectType

	anyType = stringType | numberType | booleanType | nullType | arrayType | objectType
)

// typeNames are the types by their names in JSON Schema.
var typeNames = map[string]Types{"string": stringType, "number": numberType, "integer": numberType,
	"boolean": booleanType, "null": nullType, "array": arrayType, "object": objectType}

// TypesOf returns the types of the parameters of each tool.
func TypesOf(tools []Tool) map[string]map[string]Types {
	all := map[string]map[string]Types{}
	for _, t := range tools {
		var schema struct{ Properties map[string]json.RawMessage }
		_ = json.Unmarshal(t.Parameters, &schema) // another schema says nothing
		all[t.Name] = map[string]Types{}
		for name, property := range schema.Properties {
			all[t.Name][name] = typesOf(property)
		}
	}
	return all
}

// typesOf returns the types that a schema names; 0: it does not name all of them.
func typesOf(schema json.RawMessage) (types Types) {
	var s struct {
		Type         any
		Enum         []any
		AnyOf, OneOf []json.RawMessage
	}
	if json.Unmarshal(schema, &s) != nil {
		return 0
	}
	switch named := s.Type.(type) {
	case string:
		return typeNames[named]
	case []any:
		for _, name := range named {
			name, _ := name.(string)
			types |= typeNames[name]
		}
		return types
	}
	for _, value := range s.Enum {
		raw, _ := json.Marshal(value) // it was read from JSON
		types |= typeOf(raw)
	}
	for _, option := range append(s.AnyOf, s.OneOf...) {
		of := typesOf(option)
		if of == 0 {
			return 0
		}
		types |= of
	}
	return types
}

// typeOf returns the type of a JSON text.
func typeOf(raw []byte) Types {
	switch raw[0] {
	case '"':
		return stringType
	case 't', 'f':
		return booleanType
	case 'n':
		return nullType
	case '[':
		return arrayType
	case '{':
		return objectType
	}
	return numberType
}

// valueOf returns the JSON text of a value that a model wrote without quotes. It returns false if it is a string: then
// its JSON text is the quoted value. What is JSON of a type that the parameter has is that; where the schema has no
// string, so is all JSON, and what Python prints for true, false and null.
func (t Types) valueOf(value string) (raw string, is bool) {
	if t == 0 {
		t = anyType
	}
	value = strings.TrimSpace(value)
	if json.Valid([]byte(value)) {
		return value, t&stringType == 0 || t != stringType && t&typeOf([]byte(value)) != 0
	}
	constant := map[string]string{"True": "true", "False": "false", "None": "null"}[value]
	return constant, constant != "" && t&stringType == 0 && t&typeOf([]byte(constant)) != 0
}

// escaped returns a text as it is in a JSON string. Parts of a text may be escaped apart.
func escaped(text string) string {
	if !strings.ContainsFunc(text, mustEscape) {
		return text
	}
	var b strings.Builder
	for i := range len(text) {
		if c := text[i]; mustEscape(rune(c)) {
			raw, _ := json.Marshal(string(rune(c)))
			b.Write(raw[1 : len(raw)-1])
			continue
		}
		b.WriteByte(text[i])
	}
	return b.String()
}

func mustEscape(r rune) bool { return r < ' ' || r == '"' || r == '\\' }
