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

{{- /* The Lease that is held while a machine is ordered away. */ -}}
{{- define "poolLease" -}}
{{- $options := mergeOverwrite (deepCopy .Values.options) .Values.cmdOptions -}}
{{- get $options "pool-lease" | default "spot-rescheduler-pool" -}}
{{- end -}}

{{- /* Whether replicas elect a leader; true by default. */ -}}
{{- define "elects" -}}
{{- $options := mergeOverwrite (deepCopy .Values.options) .Values.cmdOptions -}}
{{- $told := hasKey $options "leader-elect" | ternary (get $options "leader-elect") true -}}
{{- not (has (toString $told) (list "false" "False" "FALSE" "f" "F" "0")) -}}
{{- end -}}

{{- /* How room is made. In YAML, off without quotation marks is false. */ -}}
{{- /* Karpenter adds nodes for placeholders, not on request. */ -}}
{{- define "room" -}}
{{- $mode := .Values.makeRoom.mode | default "off" -}}
{{- and (eq $mode "provider") (eq .Values.cloudProvider.name "karpenter") | ternary "placeholders" $mode -}}
{{- end -}}

{{- /* "true" if a CronJob writes the prices. A release of an earlier chart, upgraded with --reuse-values, has no such value. */ -}}
{{- define "priceListed" -}}
{{- with .Values.priceList -}}{{- if .cloud -}}true{{- end -}}{{- end -}}
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

{{- /* The options, with the labels of the preset and the dry run, as YAML. */ -}}
{{- define "options" -}}
{{- $labels := dict "on-demand-node-label" "node-role.kubernetes.io/worker" "spot-node-label" "node-role.kubernetes.io/spot-worker" -}}
{{- with get .Values "preset" -}}
{{- $labels = get ($.Files.Get "files/presets.json" | fromJson) . -}}
{{- end -}}
{{- /* Helm's --reuse-values leaves out values that the release's earlier chart did not have. Such a release stays live. */ -}}
{{- if hasKey .Values "dryRun" -}}
{{- $_ := set $labels "dry-run" .Values.dryRun -}}
{{- end -}}
{{- mergeOverwrite $labels (deepCopy .Values.options) .Values.cmdOptions | toYaml -}}
{{- end -}}

{{- /* Whether nodes are drained. */ -}}
{{- define "live" -}}
{{- not (has (get (include "options" . | fromYaml) "dry-run" | toString) (list "true" "True" "TRUE" "t" "T" "1")) -}}
{{- end -}}

{{- /* The selector of a list of labels in one form: as a set, with one equals sign. */ -}}
{{- define "nodes" -}}
{{- $selectors := list -}}
{{- range kindIs "slice" . | ternary . (list .) -}}
{{- $requirements := list -}}
{{- range splitList "," . -}}
{{- $requirements = append $requirements (regexReplaceAll "\\s" . "" | replace "==" "=") -}}
{{- end -}}
{{- $selectors = append $selectors ($requirements | uniq | sortAlpha | join ",") -}}
{{- end -}}
{{- $selectors | uniq | sortAlpha | join " or " -}}
{{- end -}}

{{- /* A duration in nanoseconds. */ -}}
{{- define "nanoseconds" -}}
{{- $start := toDate "2006-01-02" "2000-01-01" -}}
{{- $days := toString . | regexFind "^[0-9]+d" -}}
{{- $text := toString . | trimPrefix $days -}}
{{- if $days -}}
{{- $text = printf "%dh%s" (trimSuffix "d" $days | int64 | mul 24) $text -}}
{{- end -}}
{{- ((mustDateModify $text $start).Sub $start).Nanoseconds -}}
{{- end -}}

{{- /* Every flag with its value, also if it is false: a flag without a value would mean true. */ -}}
{{- define "flags" -}}
{{- $options := include "options" . | fromYaml -}}
{{- $onDemand := get $options "on-demand-node-label" -}}
{{- if eq (include "nodes" $onDemand) (include "nodes" (get $options "spot-node-label")) -}}
{{- fail (printf "options.on-demand-node-label and options.spot-node-label are both %v: expected two labels" $onDemand) -}}
{{- end -}}
{{- range $name, $default := dict "failure-pause" (list "10m" "24h") "node-cooldown" (list "5m" "2h") "return-wait" (list "10m" "24h") -}}
{{- $first := dig $name (index $default 0) $options -}}
{{- $longest := dig (printf "%s-max" $name) (index $default 1) $options -}}
{{- if lt (include "nanoseconds" $longest | int64) (include "nanoseconds" $first | int64) -}}
{{- fail (printf "options.%s-max is %v, which is shorter than options.%s, %v" $name $longest $name $first) -}}
{{- end -}}
{{- end -}}
{{- if and (gt (int .Values.replicaCount) 1) (ne (include "elects" .) "true") -}}
{{- fail (printf "replicaCount is %d: more than one replica needs options.leader-elect: true" (int .Values.replicaCount)) -}}
{{- end -}}
{{- if ne .Values.cloudProvider.name "none" -}}
{{- $_ := set $options "cloud-provider" .Values.cloudProvider.name -}}
{{- if .Values.cloudProvider.config -}}
{{- if eq .Values.cloudProvider.name "karpenter" -}}
{{- fail "cloudProvider.config: the cloud provider karpenter has nothing to configure" -}}
{{- end -}}
{{- $_ := set $options "cloud-config" "/etc/spot-rescheduler/cloud-config" -}}
{{- end -}}
{{- end -}}
{{- if .Values.schedulerConfig -}}
{{- $_ := set $options "scheduler-config" "/etc/spot-rescheduler/scheduler-config" -}}
{{- end -}}
{{- if .Values.prices -}}
{{- $_ := set $options "prices" "/etc/spot-rescheduler/prices" -}}
{{- end -}}
{{- if include "priceListed" . -}}
{{- $_ := set $options "prices" "/etc/spot-rescheduler/price-list" -}}
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
{{- if eq .Values.eviction.mode "request" -}}
{{- $_ := set $options "eviction" "request" -}}
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


{{- /* Fails if the prices are invalid: CSV, or JSON if it starts with a bracket. */ -}}
{{- define "check-prices" -}}
{{- $known := list "instance_type" "zone" "capacity_type" "price" -}}
{{- $entries := list -}}
{{- $text := trim . | trimPrefix "\ufeff" -}}
{{- if regexMatch "^[\\[{]" $text -}}
{{- $document := mustFromJson $text -}}
{{- if not (kindIs "slice" $document) -}}{{- fail "prices: expected a JSON array of objects, or CSV" -}}{{- end -}}
{{- range $number, $entry := $document -}}
{{- if not (kindIs "map" $entry) -}}{{- fail (printf "prices: entry %d: expected an object" (add $number 1)) -}}{{- end -}}
{{- $entries = append $entries (dict "where" (printf "entry %d" (add $number 1)) "cells" $entry) -}}
{{- end -}}
{{- else -}}
{{- $header := list -}}
{{- range $number, $line := regexSplit "\r\n|\r|\n" $text -1 -}}
{{- $cells := list -}}
{{- range splitList "," ($line | replace "\"" "") -}}{{- $cells = append $cells (trim .) -}}{{- end -}}
{{- if join "" $cells -}}
{{- if not $header -}}
{{- $header = $cells -}}
{{- else if ne (len $cells) (len $header) -}}
{{- fail (printf "prices: line %d: %d columns: expected %d, as in the header" (add $number 1) (len $cells) (len $header)) -}}
{{- else -}}
{{- $entry := dict -}}
{{- range $column, $name := $header -}}{{- $_ := set $entry $name (index $cells $column) -}}{{- end -}}
{{- $entries = append $entries (dict "where" (printf "line %d" (add $number 1)) "cells" $entry) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if not $entries -}}{{- fail "prices: expected a header and at least one line, or a JSON array with entries" -}}{{- end -}}
{{- range $entries -}}
{{- $where := .where -}}
{{- range $name, $_ := .cells -}}
{{- if not (has $name $known) -}}{{- fail (printf "prices: %s: unknown column %q: expected %s" $where $name (join "," $known)) -}}{{- end -}}
{{- end -}}
{{- if not (dig "instance_type" "" .cells) -}}{{- fail (printf "prices: %s: expected an instance_type" $where) -}}{{- end -}}
{{- $capacity := dig "capacity_type" "" .cells | toString | lower | replace "_" "-" | replace " " "-" -}}
{{- if not (has $capacity (list "on-demand" "ondemand" "od" "standard" "regular" "normal" "consumption" "spot" "ec2spot" "preemptible")) -}}
{{- fail (printf "prices: %s: capacity_type %q: expected on-demand or spot" $where $capacity) -}}
{{- end -}}
{{- $price := dig "price" "" .cells -}}
{{- if not (kindIs "string" $price) -}}{{- $price = toJson $price -}}{{- end -}}
{{- if not (regexMatch "^[0-9]{1,9}(\\.[0-9]{1,12})?$" $price) -}}
{{- fail (printf "prices: %s: price %q: expected a price per hour such as 0.0832" $where $price) -}}
{{- end -}}
{{- end -}}
{{- end -}}
