{{- define "holdfast.labels" -}}
app.kubernetes.io/name: holdfast
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- with .component }}
app.kubernetes.io/component: {{ . }}
{{- end }}
{{- end }}

{{- define "holdfast.selector" -}}
app.kubernetes.io/name: holdfast
app.kubernetes.io/component: {{ . }}
{{- end }}

{{- define "holdfast.image" -}}
{{- $tag := .Values.image.tag | default .Chart.AppVersion -}}
{{ .Values.image.repository }}:{{ $tag }}{{ with .Values.image.digest }}@{{ . }}{{ end }}
{{- end }}

{{- define "holdfast.user" -}}
system:serviceaccount:{{ .root.Release.Namespace }}:holdfast-{{ .component }}
{{- end }}

{{- /* Values of a release from before there could be several have none. */}}
{{- define "holdfast.storeReplicas" -}}
{{ .Values.store.replicas | default 1 }}
{{- end }}

{{- /* Replica 0 has the address and the name that the only one always had. */}}
{{- define "holdfast.storeFlags" -}}
- --store-url=https://holdfast-store.{{ .Release.Namespace }}.svc:8443
{{- range $n := untilStep 1 (include "holdfast.storeReplicas" . | int) 1 }}
- --store-url=holdfast-store-{{ $n }}=https://holdfast-store-{{ $n }}.{{ $.Release.Namespace }}.svc:8443
{{- end }}
{{- end }}

{{- /* Bytes of a quantity such as 80Gi; the store's flag takes a number. */}}
{{- define "holdfast.bytes" -}}
{{- $factors := dict "" 1 "k" 1000 "M" 1000000 "G" 1000000000 "T" 1000000000000 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 -}}
{{- $suffix := regexFind "[A-Za-z]*$" (toString .) -}}
{{- mul (regexFind "^[0-9]+" (toString .) | int64) (get $factors $suffix) -}}
{{- end }}

{{- define "holdfast.restricted" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{/* What agents and controller show the store: a token that nobody else takes, so that the store could not use it elsewhere. */}}
{{- define "holdfast.storeTokenFlag" -}}
{{- if .Values.store.tokenAudience }}
- --store-token-file=/var/run/secrets/holdfast-store/token
{{- end }}
{{- end }}
{{- define "holdfast.storeTokenMount" -}}
{{- if .Values.store.tokenAudience }}
- {name: store-token, mountPath: /var/run/secrets/holdfast-store, readOnly: true}
{{- end }}
{{- end }}
{{- define "holdfast.storeTokenVolume" -}}
{{- with .Values.store.tokenAudience }}
- name: store-token
  projected:
    sources: [{serviceAccountToken: {path: token, audience: {{ . | quote }}, expirationSeconds: 3600}}]
{{- end }}
{{- end }}
