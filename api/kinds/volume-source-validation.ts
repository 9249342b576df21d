/**
 * Validates the volume sources that both pods and PersistentVolumes have. Each function returns the errors of one
 * source with the path `at`. The parameters `volume` and `withNamespace` select the rules and messages of PersistentVolumes.
 */
import { invalid, required, unsupportedValue, type FieldError } from '../meta/field-error.ts';
import { dnsLabelErrors } from '../meta/names.ts';
import { invalidFor, isBlank } from './validation-rules.ts';

type Text = string | undefined;

/** Reports absent required fields in the given order. */
export const need = (at: string, fields: Readonly<Record<string, Text>>): FieldError[] =>
  Object.entries(fields).flatMap(([field, value]) => (isBlank(value) ? [required(`${at}.${field}`)] : []));

/**
 * Validates the number of a partition. The message says that partitions begin at 1, although 0 is accepted and means the whole
 * disk.
 */
export function partitionErrors(at: string, partition: number | undefined): FieldError[] {
  const value = partition ?? 0;
  return value < 0 || value > 255 ? [invalid(`${at}.partition`, value, 'must be between 1 and 255, inclusive')] : [];
}

const byteErrors = (field: string, value: number): FieldError[] =>
  value < 0 || value > 255 ? [invalid(field, value, 'must be between 0 and 255, inclusive')] : [];

const QUALIFIED_NAMES: ReadonlyMap<string, RegExp> = new Map(
  Object.entries({
    iqn: /iqn\.\d{4}-\d{2}\.([A-Za-z0-9.-]+)(:[^,;*&$|\s]+)$/,
    eui: /^eui.[A-Za-z0-9]{16}$/,
    naa: /^naa.[A-Za-z0-9]{32}$/,
  }),
);
const BAD_FORM = 'must be valid format';

function initiatorErrors(field: string, name: string, unknown: string): FieldError[] {
  const form = QUALIFIED_NAMES.get(name.slice(0, 3));
  if (form === undefined) return [invalid(field, name, unknown)];
  return form.test(name) ? [] : [invalid(field, name, BAD_FORM)];
}

interface Iscsi {
  readonly targetPortal?: Text;
  readonly iqn?: Text;
  readonly lun?: number | undefined;
  readonly chapAuthDiscovery?: boolean | undefined;
  readonly chapAuthSession?: boolean | undefined;
  readonly secretRef?: { readonly name?: Text } | undefined;
  readonly initiatorName?: Text;
}

/**
 * Returns the errors of an iSCSI source. `volume` is the name of the PersistentVolume that contains it, and undefined in a
 * pod.
 */
export function iscsiErrors(source: Iscsi, at: string, volume?: string): FieldError[] {
  const { targetPortal = '', iqn = '', lun = 0, secretRef, initiatorName } = source;
  const unknown = volume === undefined ? `${BAD_FORM} starting with iqn, eui, or naa` : BAD_FORM;
  const errors = need(at, { targetPortal });
  if (volume !== undefined) errors.push(...portalLengthErrors(`${at}.targetportal`, targetPortal, source, volume));
  if (iqn === '') errors.push(required(`${at}.iqn`));
  else errors.push(...initiatorErrors(`${at}.iqn`, iqn, unknown));
  errors.push(...byteErrors(`${at}.lun`, lun));
  const authenticates = source.chapAuthDiscovery === true || source.chapAuthSession === true;
  if (authenticates && secretRef === undefined) errors.push(required(`${at}.secretRef`));
  if (volume !== undefined && secretRef !== undefined)
    errors.push(...need(`${at}.secretRef`, { name: secretRef.name }));
  if (initiatorName !== undefined) errors.push(...initiatorErrors(`${at}.initiatorname`, initiatorName, unknown));
  return errors;
}

/**
 * Returns the error of a name that is too long: with an initiator of its own, the volume name and the portal together name an
 * iSCSI interface of the node.
 */
export function portalLengthErrors(field: string, shown: string, source: Iscsi, volume: string): FieldError[] {
  if (source.initiatorName === undefined || `${volume}:${source.targetPortal ?? ''}`.length <= 64) return [];
  const text =
    'Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if iscsi.initiatorName is specified.';
  return [invalid(field, shown, text)];
}

interface FibreChannel {
  readonly targetWWNs?: readonly string[] | undefined;
  readonly wwids?: readonly string[] | undefined;
  readonly lun?: number | undefined;
}

/** Needs either target WWNs with a LUN, or WWIDs. */
export function fibreChannelErrors({ targetWWNs = [], wwids = [], lun }: FibreChannel, at: string): FieldError[] {
  const hasTargets = targetWWNs.length > 0;
  const field = `${at}.targetWWNs`;
  if (!hasTargets && wwids.length === 0)
    return [required(field, 'must specify either targetWWNs or wwids, but not both')];
  const errors: FieldError[] = [];
  if (hasTargets && wwids.length > 0)
    errors.push(invalid(field, targetWWNs, 'targetWWNs and wwids can not be specified simultaneously'));
  if (!hasTargets) return errors;
  if (lun === undefined) errors.push(required(`${at}.lun`, 'lun is required if targetWWNs is specified'));
  else errors.push(...byteErrors(`${at}.lun`, lun));
  return errors;
}

interface Quobyte {
  readonly registry?: Text;
  readonly tenant?: Text;
  readonly volume?: Text;
}

const HOST_PORT = /^(?:\[[^[\]]*\]|[^:[\]]*):[^:]*$/;

/** Needs a registry of host and port pairs, and a volume. */
export function quobyteErrors({ registry = '', tenant = '', volume }: Quobyte, at: string): FieldError[] {
  const errors: FieldError[] = [];
  const text = 'must be a host:port pair or multiple pairs separated by commas';
  if (registry === '') errors.push(required(`${at}.registry`, text));
  else if (tenant.length > 64)
    errors.push(required(`${at}.tenant`, 'must be a UUID and may not exceed a length of 64 characters'));
  else {
    for (const pair of registry.split(','))
      if (!HOST_PORT.test(pair)) errors.push(invalid(`${at}.registry`, registry, text));
  }
  return [...errors, ...need(at, { volume })];
}

interface Flocker {
  readonly datasetName?: Text;
  readonly datasetUUID?: Text;
}

/** Needs either a name or a UUID. */
export function flockerErrors({ datasetName = '', datasetUUID = '' }: Flocker, at: string): FieldError[] {
  const errors: FieldError[] = [];
  if (datasetName === '' && datasetUUID === '')
    errors.push(required(at, 'one of datasetName and datasetUUID is required'));
  if (datasetName !== '' && datasetUUID !== '')
    errors.push(invalid(at, 'resource', 'datasetName and datasetUUID can not be specified simultaneously'));
  if (datasetName.includes('/')) errors.push(invalid(`${at}.datasetName`, datasetName, "must not contain '/'"));
  return errors;
}

interface Flex {
  readonly driver?: Text;
  readonly options?: Readonly<Record<string, Text>> | undefined;
}

/** Needs a driver, whose options are in no domain of Kubernetes. */
export function flexErrors({ driver, options = {} }: Flex, at: string): FieldError[] {
  const errors = need(at, { driver });
  for (const key of Object.keys(options)) {
    const slash = key.indexOf('/');
    const domain = `.${(slash < 0 ? key : key.slice(0, slash)).toLowerCase()}`;
    if (domain.endsWith('.kubernetes.io') || domain.endsWith('.k8s.io'))
      errors.push(invalid(`${at}.options[${key}]`, key, 'kubernetes.io and k8s.io namespaces are reserved'));
  }
  return errors;
}

interface StorageOs {
  readonly volumeName?: Text;
  readonly volumeNamespace?: Text;
  readonly secretRef?: { readonly name?: Text; readonly namespace?: Text } | undefined;
}

/** Validates a StorageOS volume. The secret reference of a PersistentVolume also has a namespace. */
export function storageOsErrors(
  { volumeName = '', volumeNamespace = '', secretRef }: StorageOs,
  at: string,
  { withNamespace }: { readonly withNamespace: boolean },
): FieldError[] {
  const errors =
    volumeName === ''
      ? [required(`${at}.volumeName`)]
      : invalidFor(`${at}.volumeName`, volumeName, dnsLabelErrors(volumeName));
  if (volumeNamespace !== '')
    errors.push(...invalidFor(`${at}.volumeNamespace`, volumeNamespace, dnsLabelErrors(volumeNamespace)));
  if (secretRef !== undefined) errors.push(...secretErrors(secretRef, `${at}.secretRef`, withNamespace));
  return errors;
}

interface Cinder {
  readonly volumeID?: Text;
  readonly secretRef?: { readonly name?: Text; readonly namespace?: Text } | undefined;
}

/** Validates a Cinder volume. The secret of a PersistentVolume has a namespace, that of a pod has none. */
export function cinderErrors(
  { volumeID, secretRef }: Cinder,
  at: string,
  { withNamespace }: { readonly withNamespace: boolean },
): FieldError[] {
  const errors = need(at, { volumeID });
  if (secretRef !== undefined) errors.push(...secretErrors(secretRef, `${at}.secretRef`, withNamespace));
  return errors;
}

function secretErrors(secret: { name?: Text; namespace?: Text }, at: string, withNamespace: boolean): FieldError[] {
  return need(at, withNamespace ? { name: secret.name, namespace: secret.namespace } : { name: secret.name });
}

const AZURE_CACHING = ['None', 'ReadOnly', 'ReadWrite'];
const AZURE_KINDS = ['Dedicated', 'Managed', 'Shared'];
const AZURE_MANAGED = '/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}';
const AZURE_BLOB = 'https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd';

interface AzureDisk {
  readonly diskName?: Text;
  readonly diskURI?: Text;
  readonly cachingMode?: Text;
  readonly kind?: Text;
}

/** Validates an Azure disk. The form of the URI depends on the kind of disk. */
export function azureDiskErrors(disk: AzureDisk, at: string): FieldError[] {
  const { diskName, diskURI = '', cachingMode, kind } = disk;
  const errors = need(at, { diskName, diskURI });
  if (cachingMode !== undefined && !AZURE_CACHING.includes(cachingMode))
    errors.push(unsupportedValue(`${at}.cachingMode`, cachingMode, AZURE_CACHING));
  if (kind === undefined) return errors;
  if (!AZURE_KINDS.includes(kind)) errors.push(unsupportedValue(`${at}.kind`, kind, AZURE_KINDS));
  const [start, shown] = kind === 'Managed' ? ['/subscriptions/', AZURE_MANAGED] : ['https://', AZURE_BLOB];
  if (!diskURI.startsWith(start)) errors.push(unsupportedValue(`${at}.diskURI`, diskURI, [shown]));
  return errors;
}
