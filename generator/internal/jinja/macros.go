package jinja

// macro is a macro or the body of a call block. Called, it returns its text.
type macro struct {
	*macroNode
	env *environment // the variables around it
}

// arguments are the arguments of a call. Names are strings because a macro may print them.
type arguments struct {
	positional []value
	names      []str
	named      []value
}

// noNames fails if there are named arguments.
func (a *arguments) noNames(function string) {
	if len(a.names) > 0 {
		fail("%s() takes no keyword arguments", function)
	}
}

// pop removes and returns a named argument.
func (a *arguments) pop(name string) (value, bool) {
	for i, n := range a.names {
		if n.text == name {
			v := a.named[i]
			a.names = append(a.names[:i:i], a.names[i+1:]...)
			a.named = append(a.named[:i:i], a.named[i+1:]...)
			return v, true
		}
	}
	return nil, false
}

// dict returns the named arguments as a dict.
func (a *arguments) dict() *dict {
	d := newDict(len(a.names))
	for i, name := range a.names {
		d.set(name, a.named[i])
	}
	return d
}

// call calls the macro, with the rules of Jinja2's class Macro.
func (m *macro) call(r *run, a arguments) value {
	env := newEnvironment(m.function.size, m.env)
	given := min(len(a.positional), len(m.params))
	for i, at := range m.paramsAt {
		if i < given {
			env.slots[at] = a.positional[i]
		} else if v, ok := a.pop(m.params[i].name); ok {
			env.slots[at] = v
		}
	}
	m.setSpecial(env, &a)
	return r.call(env, func() {
		r.begin(m.frame)
		m.setDefaults(r)
		r.execAll(m.body)
	})
}

// setSpecial sets the variables caller, kwargs and varargs, and refuses arguments that are left
// over.
func (m *macro) setSpecial(env *environment, a *arguments) {
	if m.callerAt >= 0 {
		caller, ok := a.pop("caller")
		if !ok || caller == nil {
			caller = &undefined{hint: "No caller defined", name: literal("caller")}
		}
		env.slots[m.callerAt] = caller
	}
	if m.kwargsAt >= 0 {
		env.slots[m.kwargsAt] = a.dict()
	} else if len(a.names) > 0 {
		fail("macro '%s' takes no keyword argument '%.100s'", m.name, a.names[0].text)
	}
	rest := a.positional[min(len(a.positional), len(m.params)):]
	if m.varargsAt >= 0 {
		env.slots[m.varargsAt] = &tuple{items: rest}
	} else if len(rest) > 0 {
		fail("macro '%s' takes not more than %d argument(s)", m.name, len(m.params))
	}
}

// setDefaults sets the parameters that were not given.
func (m *macro) setDefaults(r *run) {
	first := len(m.params) - len(m.defaults)
	for i, at := range m.paramsAt {
		if !isMissing(r.env.slots[at]) {
			continue
		}
		name := m.params[i].name
		if i < first {
			r.env.slots[at] = &undefined{hint: "parameter '" + name + "' was not provided", name: literal(name)}
		} else {
			r.env.slots[at] = m.defaults[i-first].eval(r)
		}
	}
}

// attribute returns an attribute of a macro.
func (m *macro) attribute(name string) (value, bool) {
	switch name {
	case "name":
		if m.name == "" {
			return nil, true
		}
		return literal(m.name), true
	case "arguments":
		names := &tuple{}
		for _, p := range m.params {
			names.items = append(names.items, literal(p.name))
		}
		return names, true
	case "catch_kwargs":
		return m.kwargsAt >= 0, true
	case "catch_varargs":
		return m.varargsAt >= 0, true
	case "caller":
		return m.usesCaller, true
	}
	return nil, false
}
