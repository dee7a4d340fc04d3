// Package kubernetes holds manifests that put a generator and its gateway into a pod. Its tests are a module of their
// own, so that Reel does not depend on Kubernetes.
package kubernetes

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	pools "sigs.k8s.io/gateway-api-inference-extension/api/v1"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// build returns the objects of a kustomization, by kind, each decoded into the type that its API gives it. A field that
// the type has not is an error.
func build(t *testing.T, folder string) map[string]any {
	t.Helper()
	types := map[string]func() any{
		"Deployment":    func() any { return &apps.Deployment{} },
		"Service":       func() any { return &core.Service{} },
		"ConfigMap":     func() any { return &core.ConfigMap{} },
		"InferencePool": func() any { return &pools.InferencePool{} },
	}
	list, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), folder)
	if err != nil {
		t.Fatal(err)
	}
	objects := map[string]any{}
	for _, one := range list.Resources() {
		make, known := types[one.GetKind()]
		if !known {
			t.Fatalf("%s: no type for a %s", folder, one.GetKind())
		}
		object := make()
		if err := yaml.UnmarshalStrict([]byte(one.MustYaml()), object); err != nil {
			t.Fatalf("%s: %s: %v", folder, one.GetKind(), err)
		}
		objects[one.GetKind()] = object
	}
	return objects
}

// find returns the container of a name.
func find(t *testing.T, pod *core.PodSpec, name string) *core.Container {
	t.Helper()
	i := slices.IndexFunc(pod.Containers, func(c core.Container) bool { return c.Name == name })
	if i < 0 {
		t.Fatalf("no container %s", name)
	}
	return &pod.Containers[i]
}

// flag returns the value of a container's flag.
func flag(t *testing.T, c *core.Container, name string) string {
	t.Helper()
	for _, arg := range c.Args {
		if value, ok := strings.CutPrefix(arg, "--"+name+"="); ok {
			return value
		}
	}
	t.Fatalf("%s has no --%s", c.Name, name)
	return ""
}

func TestPodSharesASocket(t *testing.T) {
	pod := &build(t, "base")["Deployment"].(*apps.Deployment).Spec.Template.Spec
	generator, gateway := find(t, pod, "generator"), find(t, pod, "gateway")
	socket := flag(t, generator, "socket")
	if _, path, _ := strings.Cut(flag(t, gateway, "generator"), "="); path != socket {
		t.Errorf("the gateway looks for %s, the generator listens on %s", path, socket)
	}
	for _, c := range []*core.Container{generator, gateway} {
		if !slices.ContainsFunc(c.VolumeMounts, func(m core.VolumeMount) bool {
			return m.Name == "socket" && strings.HasPrefix(socket, m.MountPath+"/") && !m.ReadOnly
		}) {
			t.Errorf("%s does not have the socket's volume", c.Name)
		}
		s := c.SecurityContext
		if s == nil || s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation ||
			s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem {
			t.Errorf("%s is not confined: %+v", c.Name, s)
		}
	}
	if gpus := generator.Resources.Limits["nvidia.com/gpu"]; gpus.Value() != 1 {
		t.Errorf("the generator has %s GPUs", gpus.String())
	}
}

func TestProbesNameServedPorts(t *testing.T) {
	pod := &build(t, "base")["Deployment"].(*apps.Deployment).Spec.Template.Spec
	gateway := find(t, pod, "gateway")
	_, health, _ := strings.Cut(flag(t, gateway, "health-listen"), ":")
	for _, probe := range []*core.Probe{gateway.ReadinessProbe, gateway.LivenessProbe} {
		name := probe.HTTPGet.Port.String()
		i := slices.IndexFunc(gateway.Ports, func(p core.ContainerPort) bool { return p.Name == name })
		if i < 0 || health != intText(gateway.Ports[i].ContainerPort) {
			t.Errorf("a probe asks port %s, and --health-listen is %s", name, health)
		}
	}
	socket := "--socket=" + flag(t, find(t, pod, "generator"), "socket")
	for _, probe := range []*core.Probe{find(t, pod, "generator").StartupProbe, find(t, pod, "generator").LivenessProbe} {
		if !slices.Contains(probe.Exec.Command, socket) {
			t.Errorf("a probe asks %v, and the generator has %s", probe.Exec.Command, socket)
		}
	}
}

func TestImageIsAnEntryOfKustomize(t *testing.T) {
	for _, c := range build(t, "base")["Deployment"].(*apps.Deployment).Spec.Template.Spec.Containers {
		if c.Image != "reel.example/reel:0.1.0" {
			t.Errorf("the entry of images does not reach %s: %s", c.Name, c.Image)
		}
	}
}

func TestPoolSelectsThePods(t *testing.T) {
	objects := build(t, "pool")
	pool, pods := objects["InferencePool"].(*pools.InferencePool), objects["Deployment"].(*apps.Deployment).Spec.Template
	for key, value := range pool.Spec.Selector.MatchLabels {
		if pods.Labels[string(key)] != string(value) {
			t.Errorf("the pool wants %s=%s, the pods have %q", key, value, pods.Labels[string(key)])
		}
	}
	_, port, _ := strings.Cut(flag(t, find(t, &pods.Spec, "gateway"), "listen"), ":")
	if len(pool.Spec.TargetPorts) != 1 || port != intText(int32(pool.Spec.TargetPorts[0].Number)) {
		t.Errorf("the pool sends requests to %+v, the gateway listens on %s", pool.Spec.TargetPorts, port)
	}
	if service := objects["Service"].(*core.Service); !reflect.DeepEqual(service.Spec.Selector,
		objects["Deployment"].(*apps.Deployment).Spec.Selector.MatchLabels) {
		t.Errorf("the service selects %v", service.Spec.Selector)
	}
}

// A field that the API has not is refused: this is what build relies on.
func TestUnknownFieldsAreRefused(t *testing.T) {
	if err := yaml.UnmarshalStrict([]byte("spec: {replica: 1}"), &apps.Deployment{}); err == nil {
		t.Error("a misspelt field was taken")
	}
}
