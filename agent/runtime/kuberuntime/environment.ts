/** Computes a container's environment: `env` with `$(VAR)` expansion overrides `envFrom`, which overrides services. */
import type { Container, Pod } from '../../base/model/pod.ts';
import type { ReferencedObjects } from '../../base/model/referenced-objects.ts';
import { VolumeError, type VolumeText } from '../container-volumes.ts';
import type { KubeObject } from '../../../api/meta/object.ts';
import { ownMember } from '../../../api/meta/own-member.ts';
import { environmentFileValue } from './environment-file.ts';

/** Lists the services from which containers get environment variables. */
export interface ServiceLister {
  synced(): boolean;
  list(): readonly KubeObject[];
}

interface EnvironmentSources {
  readonly objects: ReferencedObjects;
  readonly services: ServiceLister;
  /** Returns a field of the pod. Fields such as `status.podIP` are known at this time. */
  readonly fieldValue: (pod: Pod, path: string) => string;
  readonly resourceValue: (pod: Pod, container: Container, resource: string, divisor: string) => string;
  /** Reads a file of one of the pod's volumes. Absent if files are not supported (feature gate `EnvFiles`). */
  readonly fileText?: ((pod: Pod, volumeName: string, path: string) => Promise<VolumeText>) | undefined;
}

/** The error of a reference that cannot be resolved. The container waits with `CreateContainerConfigError`. */
export class ContainerConfigError extends Error {
  override readonly name = 'ContainerConfigError';
}

/**
 * The maximum number of characters of an environment, without the variables of services, or of a command line. Linux starts
 * no program with more than 6 MiB of both. References multiply: each of thousands may name the same megabyte, and a variable
 * may repeat the one before it.
 */
const MAX_CHARACTERS = 16 << 20;

/** Counts the characters of variables or words, those of replaced values included. */
class CharacterBudget {
  #left = MAX_CHARACTERS;

  take(...texts: readonly string[]): void {
    for (const text of texts) this.#left -= text.length;
    if (this.#left < 0)
      throw new ContainerConfigError(`the environment or the command is longer than ${MAX_CHARACTERS} characters`);
  }
}

/** Expands the words of a command. Throws `ContainerConfigError` if they become too long together. */
export function expandAll(words: readonly string[], lookup: (name: string) => string | undefined): string[] {
  const budget = new CharacterBudget();
  return words.map((word) => {
    const expanded = expand(word, lookup);
    budget.take(expanded);
    return expanded;
  });
}

/**
 * Expands `$(NAME)` to the variable's value if it is set, and `$$` to a dollar sign. Everything else stays unchanged. Throws if
 * the expansions make the text too long.
 */
export function expand(text: string, lookup: (name: string) => string | undefined): string {
  let out = '';
  let at = 0;
  // The end of the next reference. It is searched once for all references that begin before it, because a text may have many
  // beginnings.
  let close = 0;
  for (let dollar = text.indexOf('$'); dollar !== -1; dollar = text.indexOf('$', at)) {
    const next = text.charAt(dollar + 1);
    if (next === '(' && close !== -1 && close <= dollar) close = text.indexOf(')', dollar);
    const isReference = next === '(' && close !== -1;
    const end = isReference ? close + 1 : Math.min(text.length, dollar + 2);
    const whole = text.slice(dollar, end);
    out += text.slice(at, dollar);
    if (next === '$') out += '$';
    else out += isReference ? (lookup(text.slice(dollar + 2, close)) ?? whole) : whole;
    at = end;
    // V8 copies the parts of a joined text when it is read first, so a text that is too long has not taken its memory yet.
    if (out.length > MAX_CHARACTERS)
      throw new ContainerConfigError(`an expanded text is longer than ${MAX_CHARACTERS} characters`);
  }
  return out + text.slice(at);
}

/**
 * Returns the environment variables of a container. Throws if a referenced object or key does not exist and is not optional, or
 * if the environment exceeds its limit.
 */
export async function containerEnvironment(
  pod: Pod,
  container: Container,
  sources: EnvironmentSources,
): Promise<Map<string, string>> {
  const result = new Map<string, string>();
  const budget = new CharacterBudget();
  const services = serviceEnvironment(pod, sources.services);
  for (const source of container.envFrom ?? []) {
    for (const [name, value] of await variablesFrom(pod, source, sources)) {
      budget.take(name, value);
      result.set(name, value);
    }
  }
  for (const variable of container.env ?? []) {
    const name = variable.name ?? '';
    let value: string | undefined = variable.value ?? '';
    if (variable.value !== undefined && variable.value !== '') {
      value = expand(variable.value, (wanted) => result.get(wanted) ?? services.get(wanted));
    } else if (variable.valueFrom !== undefined) {
      value = await variableFrom(pod, container, variable.valueFrom, sources);
    }
    if (value === undefined) continue;
    budget.take(name, value);
    result.set(name, value);
  }
  for (const [name, value] of services) if (!result.has(name)) result.set(name, value);
  return result;
}

type ValueFrom = NonNullable<NonNullable<Container['env']>[number]['valueFrom']>;
type EnvFrom = NonNullable<Container['envFrom']>[number];

async function variablesFrom(pod: Pod, source: EnvFrom, sources: EnvironmentSources): Promise<Map<string, string>> {
  const found = new Map<string, string>();
  const prefix = source.prefix ?? '';
  if (source.configMapRef !== undefined) {
    const data = dataOf(await sources.objects.configMap(pod, source.configMapRef.name ?? ''));
    if (data === undefined && source.configMapRef.optional !== true)
      throw new ContainerConfigError(`configmap "${source.configMapRef.name}" not found`);
    for (const [key, value] of Object.entries(data ?? {})) found.set(prefix + key, value);
  }
  if (source.secretRef !== undefined) {
    const data = dataOf(await sources.objects.secret(pod, source.secretRef.name ?? ''));
    if (data === undefined && source.secretRef.optional !== true)
      throw new ContainerConfigError(`secret "${source.secretRef.name}" not found`);
    for (const [key, value] of Object.entries(data ?? {})) found.set(prefix + key, fromBase64(value));
  }
  return found;
}

/** Returns the value; `undefined` for an optional reference whose object or key does not exist. */
async function variableFrom(
  pod: Pod,
  container: Container,
  from: ValueFrom,
  sources: EnvironmentSources,
): Promise<string | undefined> {
  const { namespace } = pod.metadata;
  if (from.fieldRef !== undefined) return sources.fieldValue(pod, from.fieldRef.fieldPath ?? '');
  if (from.resourceFieldRef !== undefined) {
    const { containerName, resource, divisor } = from.resourceFieldRef;
    const named =
      [...pod.spec.containers, ...(pod.spec.initContainers ?? [])].find((other) => other.name === containerName) ??
      container;
    return sources.resourceValue(pod, named, resource ?? '', String(divisor ?? '0'));
  }
  if (from.configMapKeyRef !== undefined) {
    const { name = '', key = '', optional } = from.configMapKeyRef;
    const data = dataOf(await sources.objects.configMap(pod, name));
    const value = ownMember(data, key);
    if (value !== undefined) return value;
    if (optional === true) return undefined;
    throw new ContainerConfigError(
      data === undefined
        ? `configmap "${name}" not found`
        : `couldn't find key ${key} in ConfigMap ${namespace}/${name}`,
    );
  }
  if (from.secretKeyRef !== undefined) {
    const { name = '', key = '', optional } = from.secretKeyRef;
    const data = dataOf(await sources.objects.secret(pod, name));
    const value = ownMember(data, key);
    if (value !== undefined) return fromBase64(value);
    if (optional === true) return undefined;
    throw new ContainerConfigError(
      data === undefined ? `secret "${name}" not found` : `couldn't find key ${key} in Secret ${namespace}/${name}`,
    );
  }
  if (from.fileKeyRef !== undefined && sources.fileText !== undefined)
    return variableOfFile(pod, from.fileKeyRef, sources.fileText);
  return '';
}

async function variableOfFile(
  pod: Pod,
  { volumeName, path, key, optional }: NonNullable<ValueFrom['fileKeyRef']>,
  fileText: NonNullable<EnvironmentSources['fileText']>,
): Promise<string | undefined> {
  let value: string;
  let file: VolumeText;
  try {
    file = await fileText(pod, volumeName, path);
    value = environmentFileValue(file.text, key);
  } catch (error) {
    if (error instanceof VolumeError) throw new ContainerConfigError(error.message, { cause: error });
    throw new ContainerConfigError("couldn't parse env file", { cause: error });
  }
  if (value !== '') return value;
  if (optional === true) return undefined;
  throw new ContainerConfigError(`environment variable key "${key}" not found in file "${file.path}"`);
}

function dataOf(object: KubeObject | undefined): Record<string, string> | undefined {
  return object === undefined ? undefined : ((object['data'] ?? {}) as Record<string, string>);
}

function fromBase64(text: string): string {
  return Buffer.from(text, 'base64').toString('utf8');
}

interface ServiceSpec {
  readonly clusterIP?: string;
  readonly ports?: readonly { readonly name?: string; readonly port: number; readonly protocol?: string }[];
}

/**
 * Returns the link variables of the services of the pod's namespace, unless the pod disables them (`enableServiceLinks`), and
 * of the service of the API server.
 */
function serviceEnvironment(pod: Pod, services: ServiceLister): Map<string, string> {
  const result = new Map<string, string>();
  const chosen = new Map<string, KubeObject>();
  for (const service of services.list()) {
    const { name = '', namespace } = service.metadata;
    const spec = (service['spec'] ?? {}) as ServiceSpec;
    if (spec.clusterIP === undefined || spec.clusterIP === '' || spec.clusterIP === 'None') continue;
    const isApiServer = namespace === 'default' && name === 'kubernetes';
    if (namespace === pod.metadata.namespace && (pod.spec.enableServiceLinks ?? true)) chosen.set(name, service);
    else if (isApiServer && !chosen.has(name)) chosen.set(name, service);
  }
  for (const [name, service] of [...chosen].toSorted(([a], [b]) => (a < b ? -1 : 1))) {
    addService(result, name, (service['spec'] ?? {}) as ServiceSpec);
  }
  return result;
}

function addService(result: Map<string, string>, name: string, spec: ServiceSpec): void {
  const upper = (text: string): string => text.toUpperCase().replaceAll('-', '_');
  const prefix = upper(name);
  const host = spec.clusterIP ?? '';
  const ports = spec.ports ?? [];
  const [first] = ports;
  if (first === undefined) return;
  result.set(`${prefix}_SERVICE_HOST`, host);
  result.set(`${prefix}_SERVICE_PORT`, String(first.port));
  for (const port of ports)
    if (port.name !== undefined && port.name !== '')
      result.set(`${prefix}_SERVICE_PORT_${upper(port.name)}`, String(port.port));
  const urlHost = host.includes(':') ? `[${host}]` : host;
  for (const [index, port] of ports.entries()) {
    const protocol = port.protocol ?? 'TCP';
    const url = `${protocol.toLowerCase()}://${urlHost}:${port.port}`;
    if (index === 0) result.set(`${prefix}_PORT`, url);
    const each = `${prefix}_PORT_${port.port}_${protocol}`;
    result.set(each, url);
    result.set(`${each}_PROTO`, protocol.toLowerCase());
    result.set(`${each}_PORT`, String(port.port));
    result.set(`${each}_ADDR`, host);
  }
}
