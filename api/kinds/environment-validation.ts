/**
 * Validates the environment of a container, and the field and resource references that environment variables share with
 * downward API volumes.
 */
import { type FieldError, invalid, notFound, required, unsupportedValue } from '../meta/field-error.ts';
import {
  dnsLabelErrors,
  configKeyErrors,
  dnsSubdomainErrors,
  nameIsSubdomain,
  qualifiedNameErrors,
  relaxedEnvironmentNameErrors,
} from '../meta/names.ts';
import { localPathErrors } from './mount-validation.ts';
import { containersOf } from './pod-annotation-validation.ts';
import type { Container, EnvironmentVariable, PodSpec, Volume } from './pod-types.ts';
import { invalidFor, isBlank } from './validation-rules.ts';

const FIELD_PATHS = [
  'metadata.name',
  'metadata.namespace',
  'metadata.uid',
  'spec.nodeName',
  'spec.serviceAccountName',
  'status.hostIP',
  'status.hostIPs',
  'status.podIP',
  'status.podIPs',
];
const CONTAINER_RESOURCES = [
  'limits.cpu',
  'limits.ephemeral-storage',
  'limits.memory',
  'requests.cpu',
  'requests.ephemeral-storage',
  'requests.memory',
];

/** Validates `env`. */
export function environmentErrors(variables: readonly EnvironmentVariable[], path: string): FieldError[] {
  const errors: FieldError[] = [];
  for (let index = 0; index < variables.length; index += 1) {
    const { name, value, valueFrom } = variables[index] ?? {};
    const texts = isBlank(name) ? [] : relaxedEnvironmentNameErrors(name);
    if (isBlank(name)) errors.push(required(`${path}[${index}].name`));
    else if (texts.length > 0) errors.push(...invalidFor(`${path}[${index}].name`, name, texts));
    if (valueFrom !== undefined) errors.push(...valueFromErrors(valueFrom, value, `${path}[${index}].valueFrom`));
  }
  return errors;
}

function valueFromErrors(
  source: NonNullable<EnvironmentVariable['valueFrom']>,
  value: string | undefined,
  path: string,
): FieldError[] {
  const errors: FieldError[] = [];
  let count = 0;
  const { fieldRef, resourceFieldRef, configMapKeyRef, secretKeyRef, fileKeyRef } = source;
  if (fieldRef !== undefined) {
    count++;
    errors.push(...fieldRefErrors(fieldRef, FIELD_PATHS, `${path}.fieldRef`));
  }
  if (resourceFieldRef !== undefined) {
    count++;
    errors.push(...resourceFieldErrors(resourceFieldRef, `${path}.resourceFieldRef`, { inVolume: false }));
  }
  if (configMapKeyRef !== undefined) {
    count++;
    errors.push(...keyReferenceErrors(configMapKeyRef, `${path}.configMapKeyRef`));
  }
  if (secretKeyRef !== undefined) {
    count++;
    errors.push(...keyReferenceErrors(secretKeyRef, `${path}.secretKeyRef`));
  }
  if (fileKeyRef !== undefined) {
    count++;
    errors.push(...fileKeyErrors(fileKeyRef, `${path}.fileKeyRef`));
  }
  if (count === 0)
    errors.push(
      invalid(
        path,
        '',
        'must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`',
      ),
    );
  else if (!isBlank(value)) errors.push(invalid(path, '', 'may not be specified when `value` is not empty'));
  else if (count > 1) errors.push(invalid(path, '', 'may not have more than one field specified at a time'));
  return errors;
}

function fileKeyErrors(
  reference: { key?: string | undefined; volumeName?: string | undefined; path?: string | undefined },
  path: string,
): FieldError[] {
  const errors: FieldError[] = [];
  if (isBlank(reference.key)) errors.push(required(`${path}.key`));
  else errors.push(...invalidFor(`${path}.key`, reference.key, relaxedEnvironmentNameErrors(reference.key)));
  if (isBlank(reference.volumeName)) errors.push(required(`${path}.volumeName`));
  else errors.push(...invalidFor(`${path}.volumeName`, reference.volumeName, dnsLabelErrors(reference.volumeName)));
  if (isBlank(reference.path)) errors.push(required(`${path}.path`));
  else errors.push(...localPathErrors(reference.path, `${path}.path`));
  return errors;
}

/** Validates that the files that variables are read from lie in volumes of the kind emptyDir. */
export function fileVolumeErrors(spec: PodSpec, path: string): FieldError[] {
  let volumes: ReadonlyMap<string, Volume> | undefined;
  return containersOf(spec, path).flatMap(([container, at]) =>
    (container.env ?? []).flatMap(({ valueFrom }, index) => {
      if (valueFrom?.fileKeyRef === undefined) return [];
      const { volumeName = '' } = valueFrom.fileKeyRef;
      const field = `${at}.env[${index}].valueFrom.fileKeyRef.volumeName`;
      volumes ??= new Map((spec.volumes ?? []).map((one) => [one.name ?? '', one]));
      const volume = volumes.get(volumeName);
      if (volume === undefined) return [notFound(field, volumeName)];
      return volume.emptyDir === undefined
        ? [invalid(field, volumeName, 'referenced volume must be of type emptyDir')]
        : [];
    }),
  );
}

function keyReferenceErrors(
  reference: { name?: string | undefined; key?: string | undefined },
  path: string,
): FieldError[] {
  const { name = '' } = reference;
  const errors: FieldError[] = invalidFor(`${path}.name`, name, dnsSubdomainErrors(name));
  if (isBlank(reference.key)) errors.push(required(`${path}.key`));
  else errors.push(...invalidFor(`${path}.key`, reference.key, configKeyErrors(reference.key)));
  return errors;
}

/** Validates a reference to a pod field, in an environment variable or a downward API volume. */
export function fieldRefErrors(
  reference: { apiVersion?: string | undefined; fieldPath?: string | undefined },
  supported: readonly string[],
  path: string,
): FieldError[] {
  if (isBlank(reference.apiVersion)) return [required(`${path}.apiVersion`)];
  if (isBlank(reference.fieldPath)) return [required(`${path}.fieldPath`)];
  const field = `${path}.fieldPath`;
  if (reference.apiVersion !== 'v1')
    return [
      invalid(
        field,
        reference.fieldPath,
        `error converting fieldPath: unsupported pod version: ${reference.apiVersion}`,
      ),
    ];
  const bracket = reference.fieldPath.indexOf("['", 1);
  if (bracket > 0 && reference.fieldPath.endsWith("']") && reference.fieldPath.length >= bracket + 4) {
    const base = reference.fieldPath.slice(0, bracket);
    const key = reference.fieldPath.slice(bracket + 2, -2);
    if (base === 'metadata.annotations')
      return invalidFor(path, key.toLowerCase(), qualifiedNameErrors(key.toLowerCase()));
    if (base === 'metadata.labels') return invalidFor(path, key, qualifiedNameErrors(key));
    const text = `error converting fieldPath: field label does not support subscript: ${reference.fieldPath}`;
    return [invalid(field, reference.fieldPath, text)];
  }
  if (!KNOWN_POD_FIELDS.has(reference.fieldPath)) {
    const text = `error converting fieldPath: field label not supported: ${reference.fieldPath}`;
    return [invalid(field, reference.fieldPath, text)];
  }
  // `spec.host` is the former name of `spec.nodeName`.
  const meant = reference.fieldPath === 'spec.host' ? 'spec.nodeName' : reference.fieldPath;
  return supported.includes(meant) ? [] : [unsupportedValue(field, meant, supported)];
}

const KNOWN_POD_FIELDS: ReadonlySet<string> = new Set([
  ...FIELD_PATHS,
  'metadata.annotations',
  'metadata.labels',
  'spec.restartPolicy',
  'spec.schedulerName',
  'status.phase',
  'spec.host',
]);

const BYTE_UNITS = ['1', '1k', '1M', '1G', '1T', '1P', '1E', '1Ki', '1Mi', '1Gi', '1Ti', '1Pi', '1Ei'];
const DIVISORS: ReadonlyMap<string, readonly string[]> = new Map(
  Object.entries({
    cpu: ['1m', '1'],
    memory: BYTE_UNITS,
    'ephemeral-storage': BYTE_UNITS,
  }),
);
const ZERO = '0';

/** Validates a `resourceFieldRef`. Volumes must name the container. */
export function resourceFieldErrors(
  reference: { containerName?: string | undefined; resource?: string | undefined; divisor?: string | undefined },
  path: string,
  { inVolume }: { readonly inVolume: boolean },
): FieldError[] {
  const { resource = '', containerName, divisor } = reference;
  const huge = /^(?:limits|requests)\.hugepages-/.test(resource);
  const errors: FieldError[] = [];
  if (inVolume && isBlank(containerName)) errors.push(required(`${path}.containerName`));
  else if (resource === '') errors.push(required(`${path}.resource`));
  else if (!CONTAINER_RESOURCES.includes(resource) && !huge)
    errors.push(unsupportedValue(`${path}.resource`, resource, CONTAINER_RESOURCES));
  if (isBlank(divisor) || divisor === ZERO || !(huge || CONTAINER_RESOURCES.includes(resource))) return errors;
  const name = resource.slice(resource.indexOf('.') + 1);
  const allowed = huge ? BYTE_UNITS : (DIVISORS.get(name) ?? []);
  if (allowed.includes(divisor)) return errors;
  const text =
    name === 'cpu'
      ? "only divisor's values 1m and 1 are supported with the cpu resource"
      : `only divisor's values 1, 1k, 1M, 1G, 1T, 1P, 1E, 1Ki, 1Mi, 1Gi, 1Ti, 1Pi, 1Ei are supported with the ${huge ? 'hugepages' : name === 'memory' ? 'memory' : 'local ephemeral storage'} resource`;
  return [...errors, invalid(`${path}.divisor`, resource, text)];
}

/** Validates `envFrom`. */
export function environmentSourceErrors(
  sources: readonly NonNullable<Container['envFrom']>[number][],
  path: string,
): FieldError[] {
  const errors: FieldError[] = [];
  for (const [index, source] of sources.entries()) {
    const at = `${path}[${index}]`;
    if (!isBlank(source.prefix))
      errors.push(...invalidFor(`${at}.prefix`, source.prefix, relaxedEnvironmentNameErrors(source.prefix)));
    let count = 0;
    for (const name of ['configMapRef', 'secretRef'] as const) {
      const reference = source[name];
      if (reference === undefined) continue;
      count++;
      if (isBlank(reference.name)) errors.push(required(`${at}.${name}.name`));
      // A trailing dash is accepted, as in the prefix of generated names.
      else
        errors.push(
          ...invalidFor(`${at}.${name}.name`, reference.name, nameIsSubdomain(reference.name, { asPrefix: true })),
        );
    }
    if (count === 0) errors.push(invalid(path, '', 'must specify one of: `configMapRef` or `secretRef`'));
    if (count > 1) errors.push(invalid(path, '', 'may not have more than one field specified at a time'));
  }
  return errors;
}
