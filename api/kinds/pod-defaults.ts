/**
 * Sets the defaults of pods and pod templates that the schema table does not contain. It changes its argument in place and is
 * idempotent.
 */
import { ownMember } from '../meta/own-member.ts';
import { isImageReference } from './image-reference.ts';
import {
  addQuantities,
  compareQuantities,
  formatQuantity,
  parseQuantity,
  type Quantity,
  roundedToMilli,
} from '../meta/quantity.ts';
import type {
  Container,
  EphemeralContainer,
  Pod,
  PodSpec,
  PodTemplate,
  Probe,
  Quantities,
  ResourceRequirements,
  Volume,
} from './pod-types.ts';

type AnyContainer = Container | EphemeralContainer;

/** Sets the defaults of a pod. Templates have no defaults of `enableServiceLinks`, requests and ports of the host. */
export function applyPodDefaults(pod: Pod): void {
  dropInitContainerAnnotations(pod.metadata);
  const spec = (pod.spec ??= {});
  applyPodSpecDefaults(spec);
  spec.enableServiceLinks ??= true;
  for (const container of [...(spec.containers ?? []), ...(spec.initContainers ?? [])]) defaultRequests(container);
  defaultPodRequests(spec);
  if (spec.hostNetwork === true) defaultHostPorts(spec);
}

/** Sets the defaults of a pod template, and removes the annotations of old init containers and an empty overhead. */
export function applyPodTemplateDefaults(template: PodTemplate | undefined): void {
  if (template === undefined) return;
  dropInitContainerAnnotations(template.metadata);
  const spec = (template.spec ??= {});
  applyPodSpecDefaults(spec);
  if (Object.keys(spec.overhead ?? {}).length === 0) delete spec.overhead;
}

const INIT_CONTAINER_ANNOTATIONS = ['init-containers', 'init-container-statuses'].flatMap((name) => [
  `pod.beta.kubernetes.io/${name}`,
  `pod.alpha.kubernetes.io/${name}`,
]);

/** Drops the annotations that clients used before init containers were fields. */
function dropInitContainerAnnotations(metadata: { annotations?: Record<string, string> } | undefined): void {
  const annotations = metadata?.annotations;
  if (metadata === undefined || annotations === undefined) return;
  const dropped = INIT_CONTAINER_ANNOTATIONS.filter((name) => Object.hasOwn(annotations, name));
  for (const name of dropped) delete annotations[name];
  if (dropped.length > 0 && Object.keys(annotations).length === 0) delete metadata.annotations;
}

function applyPodSpecDefaults(spec: PodSpec): void {
  if ((spec.dnsPolicy ?? '') === '') spec.dnsPolicy = 'ClusterFirst';
  if ((spec.restartPolicy ?? '') === '') spec.restartPolicy = 'Always';
  spec.securityContext ??= {};
  spec.terminationGracePeriodSeconds ??= 30;
  if ((spec.schedulerName ?? '') === '') spec.schedulerName = 'default-scheduler';
  sameServiceAccount(spec);
  for (const container of allContainers(spec)) defaultContainer(container);
  for (const volume of spec.volumes ?? []) defaultVolume(volume);
}

/** Sets `serviceAccountName` and `serviceAccount`, its former name, to one value: that of the new name if it has one. */
function sameServiceAccount(spec: PodSpec): void {
  const account = spec.serviceAccountName ?? spec.serviceAccount;
  if (account === undefined || account === '') return;
  spec.serviceAccountName = account;
  spec.serviceAccount = account;
}

function allContainers(spec: PodSpec): AnyContainer[] {
  return [...(spec.containers ?? []), ...(spec.initContainers ?? []), ...(spec.ephemeralContainers ?? [])];
}

function defaultContainer(container: AnyContainer): void {
  if ((container.imagePullPolicy ?? '') === '') container.imagePullPolicy = pullPolicyOf(container.image ?? '');
  if ((container.terminationMessagePath ?? '') === '') container.terminationMessagePath = '/dev/termination-log';
  if ((container.terminationMessagePolicy ?? '') === '') container.terminationMessagePolicy = 'File';
  for (const port of container.ports ?? []) if ((port.protocol ?? '') === '') port.protocol = 'TCP';
  for (const variable of container.env ?? []) {
    const { fieldRef, fileKeyRef } = variable.valueFrom ?? {};
    if (fieldRef !== undefined && (fieldRef.apiVersion ?? '') === '') fieldRef.apiVersion = 'v1';
    if (fileKeyRef !== undefined) fileKeyRef.optional ??= false;
  }
  for (const probe of [container.livenessProbe, container.readinessProbe, container.startupProbe]) {
    if (probe !== undefined) defaultProbe(probe);
  }
  for (const handler of [container.lifecycle?.postStart, container.lifecycle?.preStop]) {
    if (handler?.httpGet !== undefined) defaultHttpGet(handler.httpGet);
  }
  roundFractions(container.resources?.limits);
  roundFractions(container.resources?.requests);
}

/** Returns `Always` for the tag `latest`, which an image without tag and digest has, and otherwise `IfNotPresent`. */
function pullPolicyOf(image: string): string {
  const digest = image.indexOf('@');
  const name = digest < 0 ? image : image.slice(0, digest);
  const colon = name.indexOf(':', name.lastIndexOf('/') + 1);
  const isLatest = colon >= 0 ? name.slice(colon + 1) === 'latest' : digest < 0;
  return isLatest && isImageReference(image) ? 'Always' : 'IfNotPresent';
}

function defaultProbe(probe: Probe): void {
  probe.timeoutSeconds = probe.timeoutSeconds || 1;
  probe.periodSeconds = probe.periodSeconds || 10;
  probe.successThreshold = probe.successThreshold || 1;
  probe.failureThreshold = probe.failureThreshold || 3;
  if (probe.httpGet !== undefined) defaultHttpGet(probe.httpGet);
  if (probe.grpc !== undefined) probe.grpc.service ??= '';
}

function defaultHttpGet(action: { path?: string | undefined; scheme?: string | undefined }): void {
  if ((action.path ?? '') === '') action.path = '/';
  if ((action.scheme ?? '') === '') action.scheme = 'HTTP';
}

/** The mode of files in volumes. */
const MODE = 0o644;

function defaultVolume(volume: Volume): void {
  const hasSource = Object.keys(volume).some((key) => key !== 'name');
  if (!hasSource) volume.emptyDir = {};
  if (volume.secret !== undefined) volume.secret.defaultMode ??= MODE;
  if (volume.configMap !== undefined) volume.configMap.defaultMode ??= MODE;
  if (volume.hostPath !== undefined) volume.hostPath.type ??= '';
  if (volume.image !== undefined && (volume.image.pullPolicy ?? '') === '') {
    volume.image.pullPolicy = pullPolicyOf(volume.image.reference ?? '');
  }
  if (volume.downwardAPI !== undefined) {
    volume.downwardAPI.defaultMode ??= MODE;
    for (const item of volume.downwardAPI.items ?? []) defaultFieldRef(item.fieldRef);
  }
  if (volume.projected !== undefined) {
    volume.projected.defaultMode ??= MODE;
    for (const source of volume.projected.sources ?? []) {
      if (source.serviceAccountToken !== undefined) source.serviceAccountToken.expirationSeconds ??= 3600;
      for (const item of source.downwardAPI?.items ?? []) defaultFieldRef(item.fieldRef);
    }
  }
  defaultDisks(volume);
  const claim = volume.ephemeral?.volumeClaimTemplate;
  if (claim?.spec !== undefined) claim.spec.volumeMode ??= 'Filesystem';
}

function defaultFieldRef(reference: { apiVersion?: string | undefined } | undefined): void {
  if (reference !== undefined && (reference.apiVersion ?? '') === '') reference.apiVersion = 'v1';
}

function defaultDisks(volume: Volume): void {
  const { iscsi, rbd, azureDisk, scaleIO } = volume;
  if (iscsi !== undefined && (iscsi.iscsiInterface ?? '') === '') iscsi.iscsiInterface = 'default';
  if (rbd !== undefined) {
    if ((rbd.pool ?? '') === '') rbd.pool = 'rbd';
    if ((rbd.user ?? '') === '') rbd.user = 'admin';
    if ((rbd.keyring ?? '') === '') rbd.keyring = '/etc/ceph/keyring';
  }
  if (azureDisk !== undefined) {
    azureDisk.cachingMode ??= 'ReadWrite';
    azureDisk.kind ??= 'Shared';
    azureDisk.fsType ??= 'ext4';
    azureDisk.readOnly ??= false;
  }
  if (scaleIO !== undefined) {
    if ((scaleIO.storageMode ?? '') === '') scaleIO.storageMode = 'ThinProvisioned';
    if ((scaleIO.fsType ?? '') === '') scaleIO.fsType = 'xfs';
  }
}

/** Sets the request of each resource that has a limit and no request to the limit. */
function defaultRequests(container: Container): void {
  const { resources } = container;
  if (resources?.limits === undefined) return;
  fillRequests(resources, resources.limits);
}

function fillRequests(resources: ResourceRequirements, limits: Quantities): void {
  const requests: Record<string, string> = { ...(resources.requests as Record<string, string> | undefined) };
  for (const [name, value] of Object.entries(limits)) {
    if (value !== undefined && ownMember(requests, name) === undefined) requests[name] = value;
  }
  if (Object.keys(requests).length > 0) resources.requests = requests;
}

const POD_LEVEL: ReadonlySet<string> = new Set(['cpu', 'memory']);

/** Sets the missing pod-level requests of a pod with pod-level limits. */
function defaultPodRequests(spec: PodSpec): void {
  const { resources } = spec;
  if (resources === undefined || Object.keys(resources.limits ?? {}).length === 0) return;
  const requests: Record<string, string> = { ...(resources.requests as Record<string, string> | undefined) };
  for (const name of POD_LEVEL) {
    const sum = ownMember(requests, name) === undefined ? summedRequests(spec, name) : undefined;
    if (sum !== undefined) requests[name] = sum;
  }
  for (const [name, limit] of Object.entries((resources.limits ?? {}) as Quantities)) {
    if (limit === undefined || ownMember(requests, name) !== undefined) continue;
    if (POD_LEVEL.has(name) || name.startsWith('hugepages-')) requests[name] = limit;
  }
  if (Object.keys(requests).length > 0) resources.requests = requests;
}

/** Returns what the containers of a pod request at most at one time, or `undefined` if none requests the resource. */
function summedRequests(spec: PodSpec, name: string): string | undefined {
  const requestOf = ({ resources }: Container): string | undefined =>
    (resources?.requests as Quantities | undefined)?.[name];
  const all = [...(spec.containers ?? []), ...(spec.initContainers ?? [])];
  if (all.every((container) => requestOf(container) === undefined)) return undefined;
  const none = parseQuantity('0');
  const amountOf = (container: Container): Quantity => parseQuantity(requestOf(container) ?? '0');
  let sidecars = none;
  let most = none;
  for (const container of spec.initContainers ?? []) {
    const started = addQuantities(sidecars, amountOf(container));
    if (container.restartPolicy === 'Always') sidecars = started;
    if (compareQuantities(started, most) > 0) most = started;
  }
  const together = (spec.containers ?? []).map(amountOf).reduce(addQuantities, sidecars);
  return formatQuantity(compareQuantities(most, together) > 0 ? most : together);
}

/** Rounds requests and limits up to thousandths. */
function roundFractions(list: Record<string, string | undefined> | undefined): void {
  if (list === undefined) return;
  for (const [name, value] of Object.entries(list)) {
    if (typeof value === 'string') list[name] = roundedToMilli(value);
  }
}

/** Sets the host ports of a pod on the host's network to its container ports. */
function defaultHostPorts(spec: PodSpec): void {
  for (const container of [...(spec.containers ?? []), ...(spec.initContainers ?? [])]) {
    for (const port of container.ports ?? [])
      if ((port.hostPort ?? 0) === 0 && port.containerPort !== undefined) port.hostPort = port.containerPort;
  }
}
