{{- define "name" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- /* The name of the release, followed by the name of the chart unless it already contains it. */ -}}
{{- define "fullname" -}}
{{- $name := include "name" . -}}
{{- $full := contains $name .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name $name) -}}
{{- .Values.fullnameOverride | default $full | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "account" -}}
{{- .Values.serviceAccount.name | default (.Values.serviceAccount.create | ternary (include "fullname" .) "default") -}}
{{- end -}}

{{- /* The ConfigMap with the state that survives restarts. */ -}}
{{- define "memory" -}}
{{- $options := mergeOverwrite (deepCopy .Values.options) .Values.cmdOptions -}}
{{- get $options "memory-name" | default (printf "%s-memory" (include "fullname" .)) -}}
{{- end -}}

{{- /* The ConfigMap with the ledger of savings. */ -}}
{{- define "savings" -}}
{{- $options := mergeOverwrite (deepCopy .Values.options) .Values.cmdOptions -}}
{{- get $options "savings-name" | default (printf "%s-savings" (include "fullname" .)) -}}
{{- end -}}

{{- define "lease" -}}
{{- $options := mergeOverwrite (deepCopy .Values.options) .Values.cmdOptions -}}
{{- get $options "lease-name" | default "k8s-spot-rescheduler" -}}
{{- end -}}

{{- /* Whether replicas elect a leader; true by default. */ -}}
{{- define "elects" -}}
{{- $options := mergeOverwrite (deepCopy .Values.options) .Values.cmdOptions -}}
{{- $told := hasKey $options "leader-elect" | ternary (get $options "leader-elect") true -}}
{{- not (has (toString $told) (list "false" "False" "FALSE" "f" "F" "0")) -}}
{{- end -}}

{{- /* How room is made. In YAML, off without quotation marks is false. */ -}}
{{- define "room" -}}
{{- .Values.makeRoom.mode | default "off" -}}
{{- end -}}

{{- define "selector" -}}
app.kubernetes.io/name: {{ include "name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "labels" -}}
{{ include "selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- /* Every flag with its value, also if it is false: a flag without a value would mean true. */ -}}
{{- define "flags" -}}
{{- $options := mergeOverwrite (deepCopy .Values.options) .Values.cmdOptions -}}
{{- if and (gt (int .Values.replicaCount) 1) (ne (include "elects" .) "true") -}}
{{- fail (printf "replicaCount is %d: more than one replica needs options.leader-elect: true" (int .Values.replicaCount)) -}}
{{- end -}}
{{- if ne .Values.cloudProvider.name "none" -}}
{{- $_ := set $options "cloud-provider" .Values.cloudProvider.name -}}
{{- if .Values.cloudProvider.config -}}
{{- $_ := set $options "cloud-config" "/etc/spot-rescheduler/cloud-config" -}}
{{- end -}}
{{- end -}}
{{- if .Values.schedulerConfig -}}
{{- $_ := set $options "scheduler-config" "/etc/spot-rescheduler/scheduler-config" -}}
{{- end -}}
{{- if .Values.prices -}}
{{- $_ := set $options "prices" "/etc/spot-rescheduler/prices" -}}
{{- end -}}
{{- if ne (include "room" .) "off" -}}
{{- if and (eq (include "room" .) "provider") (eq .Values.cloudProvider.name "none") -}}
{{- fail "makeRoom.mode: provider needs a cloudProvider.name other than none" -}}
{{- end -}}
{{- $_ := set $options "make-room" (include "room" .) -}}
{{- if eq (include "room" .) "placeholders" -}}
{{- $_ := set $options "max-placeholders" (.Values.makeRoom.maxPlaceholders | int64) -}}
{{- end -}}
{{- end -}}
{{- if .Values.nodeConditions.enabled -}}
{{- $_ := set $options "report-node-conditions" true -}}
{{- end -}}
{{- range $flag, $value := $options }}
{{- $dashes := eq (len $flag) 1 | ternary "-" "--" }}
{{- range kindIs "slice" $value | ternary $value (list $value) }}
{{- /* Numbers in a values file are floats: without int64, large numbers would be written with an exponent. */}}
- {{ printf "%s%s=%s" $dashes $flag (kindIs "float64" . | ternary (. | toJson) (toString .)) | quote }}
{{- end }}
{{- end }}
{{- end -}}
