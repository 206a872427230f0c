{{- define "lunarch.labels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "lunarch.script" -}}
{{- if and .Values.script .Values.scriptConfigMap }}{{ fail "script and scriptConfigMap: give one of them" }}{{ end -}}
{{- if not (or .Values.script .Values.scriptConfigMap) }}{{ fail "no script: --set-file script=FILE.lua, or scriptConfigMap" }}{{ end -}}
{{ .Values.scriptConfigMap | default .Release.Name }}
{{- end }}

{{- define "lunarch.password" -}}
{{- if not .Values.lock }}{{ fail "passwordSecret is for the store that lock names: give lock" }}{{ end -}}
{name: {{ .Values.passwordSecret.name | quote }}, key: {{ .Values.passwordSecret.key | quote }}}
{{- end }}
