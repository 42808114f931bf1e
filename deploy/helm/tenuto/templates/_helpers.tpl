{{- define "tenuto.fullname" -}}
{{- if contains "tenuto" .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}{{ else }}{{ printf "%s-tenuto" .Release.Name | trunc 40 | trimSuffix "-" }}{{ end -}}
{{- end -}}

{{- define "tenuto.selector" -}}
app.kubernetes.io/name: tenuto
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "tenuto.labels" -}}
{{ include "tenuto.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "tenuto.image" -}}
{{ required "image.repository is required: name the image that was made from deploy/Dockerfile." .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}

{{- define "tenuto.databaseSecret" -}}
{{ required "database.existingSecret is required: name the Secret with the URLs of PostgreSQL (README.md)." .Values.database.existingSecret }}
{{- end -}}

{{- define "tenuto.busSecret" -}}
{{ required "bus.existingSecret is required: name the Secret with the passwords of the bus (README.md)." .Values.bus.existingSecret }}
{{- end -}}

{{- define "tenuto.natsUrl" -}}
{{- if .Values.nats.enabled -}}
nats://{{ include "tenuto.fullname" . }}-nats.{{ .Release.Namespace }}.svc:4222
{{- else -}}
{{ required "nats.url is required where nats.enabled is false: give the address of your NATS." .Values.nats.url }}
{{- end -}}
{{- end -}}

{{/* Ports of your NATS, for network policies. */}}
{{- define "tenuto.natsPorts" -}}
{{- $ports := list -}}
{{- range splitList "," .Values.nats.url -}}
{{- $ports = append $ports (regexFind ":[0-9]+/?$" . | trimAll ":/" | default "4222") -}}
{{- end -}}
{{- range uniq $ports }}
- port: {{ . }}
{{- end -}}
{{- end -}}

{{- define "tenuto.publicUrl" -}}
{{ .Values.gateway.publicUrl | default (printf "http://%s-gateway.%s.svc:%v" (include "tenuto.fullname" .) .Release.Namespace .Values.gateway.service.port) }}
{{- end -}}

{{- define "tenuto.claim" -}}
{{ .Values.persistence.existingClaim | default (printf "%s-state" (include "tenuto.fullname" .)) }}
{{- end -}}

{{- define "tenuto.agentsNamespace" -}}
{{ .Values.agents.namespace | default .Release.Namespace }}
{{- end -}}

{{/* Pod Security Standard "restricted". Files of the claim keep their modes, once its root has the group. */}}
{{- define "tenuto.podSecurity" -}}
runAsNonRoot: true
runAsUser: {{ .Values.accounts.user }}
runAsGroup: {{ .Values.accounts.group }}
fsGroup: {{ .Values.accounts.group }}
fsGroupChangePolicy: OnRootMismatch
supplementalGroups: [{{ .Values.accounts.workersGroup }}]
seccompProfile: { type: RuntimeDefault }
{{- end -}}

{{- define "tenuto.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: { drop: [ALL] }
{{- end -}}

{{- define "tenuto.placement" -}}
{{- with .Values.nodeSelector }}
nodeSelector: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- end -}}

{{/* A claim for one machine: who mounts it runs where the gateway runs. */}}
{{- define "tenuto.besideGateway" -}}
{{- if eq .Values.persistence.accessMode "ReadWriteOnce" }}
affinity:
  podAffinity:
    requiredDuringSchedulingIgnoredDuringExecution:
      - topologyKey: kubernetes.io/hostname
        labelSelector:
          matchLabels: {{ include "tenuto.selector" . | nindent 12 }}
            app.kubernetes.io/component: gateway
{{- end }}
{{- end -}}

{{/* Bytes of a size, for comparisons: Kubernetes writes "1024Mi" as "1Gi". */}}
{{- define "tenuto.bytes" -}}
{{- $size := toString . }}
{{- $unit := regexFind "[A-Za-z]*$" $size }}
{{- $units := dict "" 1.0 "m" 1e-3 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "P" 1e15 "E" 1e18 "Ki" 1024.0 "Mi" 1048576.0 "Gi" 1073741824.0 "Ti" 1099511627776.0 "Pi" 1125899906842624.0 }}
{{- mulf (trimSuffix $unit $size | float64) (get $units $unit) -}}
{{- end -}}

{{/* Kubernetes refuses such changes when the database is migrated and the services are changed already; so they are refused before. */}}
{{- define "tenuto.checkChanges" -}}
{{- $claim := include "tenuto.claim" . }}
{{- if not .Values.persistence.existingClaim }}
{{- with lookup "v1" "PersistentVolumeClaim" .Release.Namespace $claim }}
{{- $now := $.Values.persistence }}
{{- $class := .spec.storageClassName | default "" }}
{{- if or (ne (first .spec.accessModes) $now.accessMode) (and $now.storageClass (ne $class $now.storageClass)) }}
{{- fail (printf "persistence.accessMode and persistence.storageClass cannot be changed: the claim %s has %s of %s, and Kubernetes keeps it so. Copy its files to a claim of yours, and name that as persistence.existingClaim." $claim (first .spec.accessModes) ($class | default "the default class")) }}
{{- end }}
{{- $before := .spec.resources.requests.storage }}
{{- if lt (include "tenuto.bytes" $now.size | float64) (include "tenuto.bytes" $before | float64) }}
{{- fail (printf "persistence.size cannot be made smaller: the claim %s has %v, and this is %v; Kubernetes lets it grow only. Say %v or more, or copy its files to a claim of yours, and name that as persistence.existingClaim." $claim $before $now.size $before) }}
{{- end }}
{{- end }}
{{- end }}
{{- if .Values.nats.enabled }}
{{- $name := printf "%s-nats" (include "tenuto.fullname" .) }}
{{- with lookup "apps/v1" "StatefulSet" .Release.Namespace $name }}
{{- $now := $.Values.nats.persistence }}
{{- $before := .spec.volumeClaimTemplates | default list }}
{{- $other := ne (empty $before) (not $now.enabled) }}
{{- if and $before (not $other) }}
{{- $spec := (first $before).spec }}
{{- $class := $spec.storageClassName | default "" }}
{{- $other = or (ne (include "tenuto.bytes" $spec.resources.requests.storage) (include "tenuto.bytes" $now.size)) (and $now.storageClass (ne $class $now.storageClass)) }}
{{- end }}
{{- if $other }}
{{- fail (printf "nats.persistence cannot be changed while the StatefulSet %s exists. Delete it and its claim data-%s-0 first (kubectl delete statefulset,pvc): what it stores, the relay writes again from PostgreSQL." $name $name) }}
{{- end }}
{{- end }}
{{- end }}
{{- end -}}
