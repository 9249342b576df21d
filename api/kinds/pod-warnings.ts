/**
 * Returns warnings about fields of a pod that are valid but probably unintended. The texts become `Warning: 299` headers, in
 * kube-apiserver's order.
 */
import { quoteText } from '../meta/quote.ts';
import type { ObjectMeta } from '../meta/object.ts';
import { dnsLabelErrors, labelValueErrors } from '../meta/names.ts';
import { ownMember } from '../meta/own-member.ts';
import { ipWarnings } from './address-warnings.ts';
import { containersOf } from './pod-annotation-validation.ts';
import type { Container, PodSpec, Quantities } from './pod-types.ts';
import { fractionWarning, volumeWarnings } from './volume-warnings.ts';
import { APP_ARMOR_PREFIX, SECCOMP_CONTAINER_PREFIX, SECCOMP_POD_ANNOTATION } from './pod-annotations.ts';

/** Deprecated labels of nodes, with the text of their warning. */
export const DEPRECATED_LABELS: ReadonlyMap<string, string> = new Map(
  Object.entries({
    'beta.kubernetes.io/arch': 'deprecated since v1.14; use "kubernetes.io/arch" instead',
    'beta.kubernetes.io/os': 'deprecated since v1.14; use "kubernetes.io/os" instead',
    'failure-domain.beta.kubernetes.io/region': 'deprecated since v1.17; use "topology.kubernetes.io/region" instead',
    'failure-domain.beta.kubernetes.io/zone': 'deprecated since v1.17; use "topology.kubernetes.io/zone" instead',
    'beta.kubernetes.io/instance-type': 'deprecated since v1.17; use "node.kubernetes.io/instance-type" instead',
  }),
);

const MATCHES_NONE = 'a null labelSelector results in matching no pod';

/** Returns the warnings of a pod (`path` is empty) or a template (`spec.template`). */
export function podWarnings(meta: ObjectMeta | undefined, spec: PodSpec, path = ''): string[] {
  const prefix = path === '' ? '' : `${path}.`;
  const at = `${prefix}spec`;
  const annotations = `${prefix}metadata.annotations`;
  return [
    ...placementWarnings(spec, at),
    ...goneAnnotationWarnings(meta, annotations),
    ...volumeWarnings(spec, at),
    ...hostAliasWarnings(spec, at),
    ...pullSecretWarnings(spec, at),
    ...fractionWarnings(spec.overhead as Quantities | undefined, `${at}.overhead`),
    ...podSeccompWarnings(meta, spec, annotations),
    ...containerWarnings(meta, spec, { at, annotations, isTemplate: path !== '' }),
    ...allPortWarnings(spec, at),
    ...graceWarnings(spec, at),
    ...affinityWarnings(spec, `${at}.affinity`),
    ...addressWarnings(spec, at),
  ];
}

/** Returns warnings about a pod name that is not a valid hostname. */
export function podNameWarnings(name: string): string[] {
  return dnsLabelErrors(name).map(
    (text) =>
      `metadata.name: this is used in the Pod's hostname, which can result in surprising behavior; a DNS label is recommended: [${text}]`,
  );
}

/** Returns warnings about the name of an object if the names of its pods would not be valid hostnames. */
export function ownerNameWarnings(name: string): string[] {
  return dnsLabelErrors(name).map(
    (text) =>
      `metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; a DNS label is recommended: [${text}]`,
  );
}

function placementWarnings(spec: PodSpec, at: string): string[] {
  const texts: string[] = [];
  for (const key of Object.keys(spec.nodeSelector ?? {}).sort()) {
    const text = DEPRECATED_LABELS.get(key);
    if (text !== undefined) texts.push(`${at}.nodeSelector[${key}]: ${text}`);
  }
  const affinity = spec.affinity?.nodeAffinity;
  const base = `${at}.affinity.nodeAffinity`;
  for (const [index, term] of (
    affinity?.requiredDuringSchedulingIgnoredDuringExecution?.nodeSelectorTerms ?? []
  ).entries())
    texts.push(
      ...termWarnings(term, `${base}.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[${index}]`),
    );
  for (const [index, { preference }] of (affinity?.preferredDuringSchedulingIgnoredDuringExecution ?? []).entries())
    texts.push(
      ...termWarnings(preference, `${base}.preferredDuringSchedulingIgnoredDuringExecution[${index}].preference`, {
        checksValues: true,
      }),
    );
  for (const [index, constraint] of (spec.topologySpreadConstraints ?? []).entries()) {
    const path = `${at}.topologySpreadConstraints[${index}]`;
    const text = DEPRECATED_LABELS.get(constraint.topologyKey ?? '');
    if (text !== undefined) texts.push(`${path}.topologyKey: ${constraint.topologyKey} is ${text}`);
    if (constraint.labelSelector === undefined) texts.push(`${path}.labelSelector: ${MATCHES_NONE}`);
  }
  return texts;
}

interface Term {
  readonly matchExpressions?: readonly { key?: string | undefined; values?: string[] | undefined }[] | undefined;
}

/** Returns the warnings of a node selector term, with `checksValues` also about values that no label can have. */
function termWarnings(term: Term | undefined, at: string, { checksValues = false } = {}): string[] {
  return (term?.matchExpressions ?? []).flatMap(({ key = '', values = [] }, index) => {
    const path = `${at}.matchExpressions[${index}]`;
    const text = DEPRECATED_LABELS.get(key);
    return [
      ...(text === undefined ? [] : [`${path}.key: ${key} is ${text}`]),
      ...(checksValues ? values : []).flatMap((value, place) =>
        labelValueErrors(value).map((error) => `${path}.values[${place}]: ${value} is invalid, ${error}`),
      ),
    ];
  });
}

const GONE_ANNOTATIONS: readonly (readonly [string, string])[] = [
  ['scheduler.alpha.kubernetes.io/critical-pod', 'non-functional in v1.16+; use the "priorityClassName" field instead'],
  ['security.alpha.kubernetes.io/sysctls', 'non-functional in v1.11+; use the "sysctls" field instead'],
  ['security.alpha.kubernetes.io/unsafe-sysctls', 'non-functional in v1.11+; use the "sysctls" field instead'],
];

function goneAnnotationWarnings(meta: ObjectMeta | undefined, at: string): string[] {
  return GONE_ANNOTATIONS.flatMap(([key, text]) =>
    meta?.annotations?.[key] === undefined ? [] : [`${at}[${key}]: ${text}`],
  );
}

function hostAliasWarnings(spec: PodSpec, at: string): string[] {
  const seen = new Set<string>();
  return (spec.hostAliases ?? []).flatMap(({ ip = '' }, index) => {
    const isRepeated = seen.has(ip);
    seen.add(ip);
    return isRepeated ? [`${at}.hostAliases[${index}].ip: duplicate ip ${quoteText(ip)}`] : [];
  });
}

function pullSecretWarnings(spec: PodSpec, at: string): string[] {
  const seen = new Set<string>();
  const repeated: string[] = [];
  const empty: string[] = [];
  for (const [index, { name = '' }] of (spec.imagePullSecrets ?? []).entries()) {
    const field = `${at}.imagePullSecrets[${index}].name`;
    if (seen.has(name)) repeated.push(`${field}: duplicate name ${quoteText(name)}`);
    seen.add(name);
    if (name === '') empty.push(`${field}: invalid empty name ${quoteText(name)}`);
  }
  return [...repeated, ...empty];
}

const FRACTIONLESS = ['memory', 'ephemeral-storage'];

function fractionWarnings(list: Quantities | undefined, at: string): string[] {
  return FRACTIONLESS.flatMap((name) => {
    const value = list?.[name];
    return value === undefined ? [] : fractionWarning(value, `${at}[${name}]`);
  });
}

interface Place {
  readonly at: string;
  readonly annotations: string;
  readonly isTemplate: boolean;
}

function containerWarnings(meta: ObjectMeta | undefined, spec: PodSpec, place: Place): string[] {
  const texts: string[] = [];
  for (const [container, path] of containersOf(spec, place.at)) {
    texts.push(...containerAnnotationWarnings(meta, spec, container, place));
    const resources: Readonly<Record<string, unknown>> = container.resources ?? {};
    for (const name of FRACTIONLESS) {
      for (const kind of ['limits', 'requests'] as const) {
        const value = (resources[kind] as Quantities | undefined)?.[name];
        if (value !== undefined) texts.push(...fractionWarning(value, `${path}.resources.${kind}[${name}]`));
      }
    }
    texts.push(...environmentWarnings(container, path));
  }
  return texts;
}

function allPortWarnings(spec: PodSpec, at: string): string[] {
  const seen: SeenPorts = { names: new Map(), numbers: new Map() };
  return containersOf(spec, at).flatMap(([container, path]) => portWarnings(container, path, seen));
}

type AnyContainer = ReturnType<typeof containersOf>[number][0];

function environmentWarnings(container: AnyContainer, at: string): string[] {
  const seen = new Set<string>();
  const texts: string[] = [];
  for (const [index, { name = '', value = '', valueFrom }] of (container.env ?? []).entries()) {
    if (seen.has(name) && !(valueFrom === undefined && isExtensionOf(name, value))) {
      const text = `hides previous definition of ${quoteText(name)}, which may be dropped when using apply`;
      texts.push(`${at}.env[${index}]: ${text}`);
    }
    seen.add(name);
  }
  return texts;
}

/** Whether the value of a variable contains the former value of it, and something else. */
function isExtensionOf(name: string, value: string): boolean {
  const former = `$(${name})`;
  return value !== former && value.includes(former);
}

type Port = NonNullable<Container['ports']>[number];

/** The ports of all visited containers, with the field that contains each. */
interface SeenPorts {
  readonly names: Map<string, string>;
  readonly numbers: Map<string, { readonly field: string; readonly port: Port }[]>;
}

function portWarnings(container: AnyContainer, at: string, seen: SeenPorts): string[] {
  const texts: string[] = [];
  for (const [index, port] of (container.ports ?? []).entries()) {
    const field = `${at}.ports[${index}]`;
    const { name = '', containerPort = 0, protocol = '', hostPort = 0, hostIP = '' } = port;
    if (hostIP !== '' && hostPort === 0) {
      const shown = `{Name:${name} HostPort:0 ContainerPort:${containerPort} Protocol:${protocol} HostIP:${hostIP}}`;
      texts.push(`${field}: hostIP set without hostPort: ${shown}`);
    }
    const key = `${containerPort}/${protocol}`;
    const others = seen.numbers.get(key);
    if (others === undefined) seen.numbers.set(key, [{ field, port }]);
    else {
      texts.push(...others.flatMap((other) => samePortWarnings(field, port, other)));
      others.push({ field, port });
    }
    if (name === '') continue;
    const other = seen.names.get(name);
    if (other === undefined) seen.names.set(name, field);
    else {
      const text = `duplicate port name ${quoteText(name)} with ${other}`;
      texts.push(`${field}: ${text}, services and probes that select ports by name will use ${other}`);
    }
  }
  return texts;
}

function samePortWarnings(field: string, port: Port, other: { readonly field: string; readonly port: Port }): string[] {
  const { hostPort = 0, hostIP = '' } = port;
  const { hostPort: otherPort = 0, hostIP: otherIp = '' } = other.port;
  if (hostIP === otherIp && hostPort === otherPort) return [`${field}: duplicate port definition with ${other.field}`];
  if (hostPort === 0 || otherPort === 0) return [`${field}: overlapping port definition with ${other.field}`];
  if (hostPort === otherPort && (hostIP === '') !== (otherIp === ''))
    return [`${field}: dangerously ambiguous port definition with ${other.field}`];
  return [];
}

function graceWarnings(spec: PodSpec, at: string): string[] {
  const seconds = spec.terminationGracePeriodSeconds;
  return seconds !== undefined && seconds < 0
    ? [`${at}.terminationGracePeriodSeconds: must be >= 0; negative values are invalid and will be treated as 1`]
    : [];
}

const SECCOMP_TEXT = 'non-functional in v1.27+; use the "seccompProfile" field instead';

/** Returns a warning about the annotation that the field `seccompProfile` has replaced, unless the pod also sets the field. */
function podSeccompWarnings(meta: ObjectMeta | undefined, spec: PodSpec, at: string): string[] {
  const isDeprecated =
    meta?.annotations?.[SECCOMP_POD_ANNOTATION] !== undefined && spec.securityContext?.seccompProfile === undefined;
  return isDeprecated ? [`${at}[${SECCOMP_POD_ANNOTATION}]: ${SECCOMP_TEXT}`] : [];
}

function containerAnnotationWarnings(
  meta: ObjectMeta | undefined,
  spec: PodSpec,
  { name = '', securityContext }: AnyContainer,
  { annotations: at, isTemplate }: Place,
): string[] {
  const annotations = meta?.annotations ?? {};
  const texts: string[] = [];
  const seccomp = `${SECCOMP_CONTAINER_PREFIX}${name}`;
  if (ownMember(annotations, seccomp) !== undefined && securityContext?.seccompProfile === undefined)
    texts.push(`${at}[${seccomp}]: ${SECCOMP_TEXT}`);
  // For a pod, the warning is issued where the annotation is converted to the field.
  const appArmor = `${APP_ARMOR_PREFIX}${name}`;
  const profile = securityContext?.appArmorProfile ?? spec.securityContext?.appArmorProfile;
  if (isTemplate && ownMember(annotations, appArmor) !== undefined && profile === undefined)
    texts.push(`${at}[${appArmor}]: deprecated since v1.30; use the "appArmorProfile" field instead`);
  return texts;
}

function affinityWarnings(spec: PodSpec, at: string): string[] {
  return (['podAffinity', 'podAntiAffinity'] as const).flatMap((name) => {
    const group = spec.affinity?.[name];
    const paths = [
      ...(group?.requiredDuringSchedulingIgnoredDuringExecution ?? []).map(
        ({ labelSelector }, index) =>
          [`requiredDuringSchedulingIgnoredDuringExecution[${index}]`, labelSelector] as const,
      ),
      ...(group?.preferredDuringSchedulingIgnoredDuringExecution ?? []).map(
        ({ podAffinityTerm }, index) =>
          [
            `preferredDuringSchedulingIgnoredDuringExecution[${index}].podAffinityTerm`,
            podAffinityTerm?.labelSelector,
          ] as const,
      ),
    ];
    return paths.flatMap(([where, selector]) =>
      selector === undefined ? [`${at}.${name}.${where}.labelSelector: ${MATCHES_NONE}`] : [],
    );
  });
}

function addressWarnings(spec: PodSpec, at: string): string[] {
  return [
    ...(spec.dnsConfig?.nameservers ?? []).flatMap((server, index) =>
      ipWarnings(`${at}.dnsConfig.nameservers[${index}]`, server),
    ),
    ...(spec.hostAliases ?? []).flatMap(({ ip = '' }, index) => ipWarnings(`${at}.hostAliases[${index}].ip`, ip)),
  ];
}
