{{- define "thermocline.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "thermocline.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- else if contains (include "thermocline.name" .) .Release.Name }}
{{- .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "thermocline.name" .) | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "thermocline.selectorLabels" -}}
app.kubernetes.io/name: {{ include "thermocline.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "thermocline.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{ include "thermocline.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "thermocline.serviceAccount" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "thermocline.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "thermocline.image" -}}
{{- if .Values.image.digest }}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest }}
{{- else }}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) }}
{{- end }}
{{- end }}

{{- /* Not empty if a policy does more than observe. */ -}}
{{- define "thermocline.acts" -}}
{{- range .Values.policies }}
{{- if ne (default "observe" .mode) "observe" }}yes{{ end }}
{{- end }}
{{- end }}

{{- /* The capabilities of thermo-agent.service: those of watching, and those of acting only if a policy acts. */ -}}
{{- define "thermocline.capabilities" -}}
- BPF
- PERFMON
- SYS_NICE
- SYS_PTRACE
- SYSLOG
{{- if include "thermocline.acts" . }}
- DAC_READ_SEARCH
- FOWNER
- IPC_LOCK
{{- end }}
{{- end }}

{{- /* The group of the agent's files, and user and group of the uploader: no user of the image. */ -}}
{{- define "thermocline.group" -}}65532{{- end }}

{{- /* The resource of the kubelet's /pods. */ -}}
{{- define "thermocline.kubeletResource" -}}
{{- if eq .Values.names.access "auto" }}
{{- ternary "nodes/pods" "nodes/proxy" (semverCompare ">=1.33.0-0" .Capabilities.KubeVersion.Version) }}
{{- else }}
{{- printf "nodes/%s" .Values.names.access }}
{{- end }}
{{- end }}

{{- /* agent.toml. */ -}}
{{- define "thermocline.config" -}}
{{- $listen := printf "127.0.0.1:%d" (int .Values.http.port) }}
{{- $http := dict "socket" "/run/thermo/agent.sock" }}
{{- if .Values.http.tls.secretName }}
{{- $listen = printf "[::]:%d" (int .Values.http.port) }}
{{- $_ := set $http "certificate" "/etc/thermo/tls/tls.crt" }}
{{- $_ := set $http "key" "/etc/thermo/tls/tls.key" }}
{{- $_ := set $http "read_token_file" "/etc/thermo/tls/read-token" }}
{{- if .Values.http.tls.adminToken }}
{{- $_ := set $http "admin_token_file" "/etc/thermo/tls/admin-token" }}
{{- end }}
{{- end }}
{{- $_ := set $http "listen" $listen }}
{{- $policies := list }}
{{- range .Values.policies }}
{{- $name := ternary (dict "target_name" "{namespace}/{workload}/{container_name}") dict $.Values.names.enabled }}
{{- $policies = append $policies (merge (deepCopy .) $name) }}
{{- end }}
{{- $config := dict "budget" .Values.budget "state_dir" "/var/lib/thermo" "http" $http "policy" $policies }}
{{- $_ := set $config "history" (dict "enabled" .Values.history.enabled "keep" .Values.history.keep "max_size" .Values.history.maxSize) }}
{{- if .Values.guard }}
{{- $_ := set $config "guard" .Values.guard }}
{{- end }}
{{- if .Values.names.enabled }}
{{- $kubernetes := dict "enabled" true "kubelet" (printf "https://${NODE_IP}:%d" (int .Values.names.kubeletPort)) "node" "${NODE_NAME}" }}
{{- if .Values.names.kubeletCertificate }}
{{- $_ := set $kubernetes "ca_file" "/etc/thermo/kubelet.crt" }}
{{- end }}
{{- $_ := set $config "kubernetes" $kubernetes }}
{{- end }}
{{- if .Values.export.enabled }}
{{- $_ := set $config "export" (dict "every" .Values.export.every "cluster" .Values.export.cluster "node" "${NODE_NAME}") }}
{{- end }}
{{- toToml $config }}
{{- end }}
