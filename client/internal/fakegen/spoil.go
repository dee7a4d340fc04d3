package fakegen

import (
	"reflect"
	"slices"
)

// Spoil returns a Script.Spoil that writes text into every string of every reply,
// except fields named in keep, such as "Code". It allocates structs that are nil.
func Spoil(text string, keep ...string) func(reply any) {
	return func(reply any) { spoil(reflect.ValueOf(reply), text, keep) }
}

func spoil(v reflect.Value, text string, keep []string) {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() && v.Type().Elem().Kind() == reflect.Struct {
			v.Set(reflect.New(v.Type().Elem()))
		}
		spoil(v.Elem(), text, keep)
	case reflect.Slice:
		for i := range v.Len() {
			spoil(v.Index(i), text, keep)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if !slices.Contains(keep, v.Type().Field(i).Name) {
				spoil(v.Field(i), text, keep)
			}
		}
	case reflect.String:
		v.SetString(text)
	}
}

// copied returns a pointer to a shallow copy of the message that m points to, so that
// replies that a script reuses are not spoilt.
func copied(m any) any {
	c := reflect.New(reflect.TypeOf(m).Elem())
	c.Elem().Set(reflect.ValueOf(m).Elem())
	return c.Interface()
}
