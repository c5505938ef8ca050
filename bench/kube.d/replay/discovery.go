package main

// discovery answers what a REST mapper asks: /version, /api, /apis and below; nil for any other path.
func (a *api) discovery(path string) any {
	switch path {
	case "/version":
		return map[string]string{"major": "1", "minor": "37", "gitVersion": "v1.37.1", "platform": "linux/amd64"}
	case "/api":
		return map[string]any{"kind": "APIVersions", "versions": []string{"v1"}, "serverAddressByClientCIDRs": []any{}}
	case "/apis":
		groups := []any{}
		for _, s := range a.stores {
			if s.group != "" {
				groups = append(groups, s.groupObject())
			}
		}
		return map[string]any{"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
	}
	for _, s := range a.stores {
		switch path {
		case "/apis/" + s.group:
			return s.groupObject()
		case s.basePath():
			return map[string]any{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": s.apiVersion(), "resources": []any{map[string]any{
				"name": s.plural, "singularName": "", "namespaced": true, "kind": s.kind.kind, "verbs": []string{"get", "list", "watch"}}}}
		}
	}
	return nil
}

func (s *store) groupObject() map[string]any {
	version := map[string]string{"groupVersion": s.apiVersion(), "version": s.version}
	return map[string]any{"kind": "APIGroup", "apiVersion": "v1", "name": s.group, "versions": []any{version}, "preferredVersion": version}
}
