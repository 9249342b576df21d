/** Validation of a pod's volumes: one source each, and what each source needs. */
import { duplicate, FieldError, forbidden, invalid, required, unsupportedValue } from '../meta/field-error.ts';
import { dnsLabelErrors, dnsSubdomainErrors } from '../meta/names.ts';
import { validateLabels } from '../meta/selector.ts';
import { validateAnnotations } from '../meta/validation.ts';
import { parseQuantity } from '../meta/quantity.ts';
import { fieldRefErrors, localPathErrors, resourceFieldErrors } from './container-validation.ts';
import type { PodSpec, Volume } from './pod-types.ts';
import { each, inRange, isBlank } from './validation-rules.ts';

/** The source of each volume that has a valid name. */
export type VolumeKinds = ReadonlyMap<string, string>;

export function volumeKindsOf(volumes: readonly Volume[]): VolumeKinds {
  const kinds = new Map<string, string>();
  for (const volume of volumes) {
    if (isBlank(volume.name) || dnsLabelErrors(volume.name).length > 0 || kinds.has(volume.name)) continue;
    kinds.set(volume.name, Object.keys(volume).find((key) => key !== 'name') ?? '');
  }
  return kinds;
}

export function volumeErrors(spec: PodSpec, path: string): FieldError[] {
  const errors: FieldError[] = [];
  const names = new Set<string>();
  for (const [index, volume] of (spec.volumes ?? []).entries()) {
    const at = `${path}[${index}]`;
    errors.push(...sourceErrors(volume, at));
    const { name = '' } = volume;
    if (name === '') errors.push(required(`${at}.name`));
    else {
      errors.push(...each(`${at}.name`, name, dnsLabelErrors(name)));
      if (names.has(name)) errors.push(duplicate(`${at}.name`, name));
    }
    names.add(name);
  }
  return errors;
}

type Check = (volume: Volume, at: string) => FieldError[];

const need = (at: string, fields: Readonly<Record<string, string | undefined>>): FieldError[] =>
  Object.entries(fields).flatMap(([field, value]) => (isBlank(value) ? [required(`${at}.${field}`)] : []));

const SOURCES: Readonly<Record<string, Check>> = {
  emptyDir: ({ emptyDir }, at) => {
    const limit = emptyDir?.sizeLimit;
    return limit !== undefined && parseQuantity(limit).nano < 0n
      ? [forbidden(`${at}.emptyDir.sizeLimit`, 'SizeLimit field must be a valid resource quantity')]
      : [];
  },
  hostPath: ({ hostPath }, at) => hostPathErrors(hostPath ?? {}, `${at}.hostPath`),
  gitRepo: ({ gitRepo }, at) => [
    ...need(`${at}.gitRepo`, { repository: gitRepo?.repository }),
    ...localPathErrors(gitRepo?.directory ?? '', `${at}.gitRepo.directory`),
  ],
  gcePersistentDisk: ({ gcePersistentDisk: disk }, at) => [
    ...need(`${at}.gcePersistentDisk`, { pdName: disk?.pdName }),
    ...inRange(`${at}.gcePersistentDisk.partition`, disk?.partition, 0, 255),
  ],
  awsElasticBlockStore: ({ awsElasticBlockStore: disk }, at) => [
    ...need(`${at}.awsElasticBlockStore`, { volumeID: disk?.volumeID }),
    ...inRange(`${at}.awsElasticBlockStore.partition`, disk?.partition, 0, 255),
  ],
  secret: ({ secret }, at) => [
    ...need(`${at}.secret`, { secretName: secret?.secretName }),
    ...modeErrors(secret?.defaultMode, `${at}.secret.defaultMode`),
    ...keyToPathErrors(secret?.items, `${at}.secret.items`),
  ],
  nfs: ({ nfs }, at) => [
    ...need(`${at}.nfs`, { server: nfs?.server, path: nfs?.path }),
    ...((nfs?.path ?? '').startsWith('/')
      ? []
      : [invalid(`${at}.nfs.path`, nfs?.path ?? '', 'must be an absolute path')]),
  ],
  iscsi: ({ iscsi }, at) => iscsiErrors(iscsi ?? {}, `${at}.iscsi`),
  glusterfs: ({ glusterfs }, at) => need(`${at}.glusterfs`, { endpoints: glusterfs?.endpoints, path: glusterfs?.path }),
  persistentVolumeClaim: ({ persistentVolumeClaim: claim }, at) =>
    need(`${at}.persistentVolumeClaim`, { claimName: claim?.claimName }),
  rbd: ({ rbd }, at) => [
    ...((rbd?.monitors ?? []).length === 0 ? [required(`${at}.rbd.monitors`)] : []),
    ...need(`${at}.rbd`, { image: rbd?.image }),
  ],
  cephfs: ({ cephfs }, at) => ((cephfs?.monitors ?? []).length === 0 ? [required(`${at}.cephfs.monitors`)] : []),
  flexVolume: ({ flexVolume }, at) => need(`${at}.flexVolume`, { driver: flexVolume?.driver }),
  cinder: ({ cinder }, at) => need(`${at}.cinder`, { volumeID: cinder?.volumeID }),
  fc: ({ fc }, at) => {
    const errors: FieldError[] = [];
    if ((fc?.targetWWNs ?? []).length === 0 && (fc?.wwids ?? []).length === 0) {
      errors.push(required(`${at}.fc.targetWWNs`, 'must specify either targetWWNs or wwids, but not both'));
    }
    return errors;
  },
  downwardAPI: ({ downwardAPI }, at) => [
    ...modeErrors(downwardAPI?.defaultMode, `${at}.downwardAPI.defaultMode`),
    ...(downwardAPI?.items ?? []).flatMap((item) => downwardItemErrors(item, `${at}.downwardAPI`)),
  ],
  configMap: ({ configMap }, at) => [
    ...need(`${at}.configMap`, { name: configMap?.name }),
    ...modeErrors(configMap?.defaultMode, `${at}.configMap.defaultMode`),
    ...keyToPathErrors(configMap?.items, `${at}.configMap.items`),
  ],
  projected: ({ projected }, at) => [
    ...modeErrors(projected?.defaultMode, `${at}.projected.defaultMode`),
    ...projectionErrors(projected?.sources ?? [], `${at}.projected`),
  ],
  azureFile: ({ azureFile }, at) =>
    need(`${at}.azureFile`, { secretName: azureFile?.secretName, shareName: azureFile?.shareName }),
  vsphereVolume: ({ vsphereVolume }, at) => need(`${at}.vsphereVolume`, { volumePath: vsphereVolume?.volumePath }),
  photonPersistentDisk: ({ photonPersistentDisk }, at) =>
    need(`${at}.photonPersistentDisk`, { pdID: photonPersistentDisk?.pdID }),
  portworxVolume: ({ portworxVolume }, at) => need(`${at}.portworxVolume`, { volumeID: portworxVolume?.volumeID }),
  azureDisk: ({ azureDisk }, at) =>
    need(`${at}.azureDisk`, { diskName: azureDisk?.diskName, diskURI: azureDisk?.diskURI }),
  storageos: ({ storageos }, at) => need(`${at}.storageos`, { volumeName: storageos?.volumeName }),
  quobyte: ({ quobyte }, at) => need(`${at}.quobyte`, { registry: quobyte?.registry, volume: quobyte?.volume }),
  flocker: ({ flocker }, at) =>
    isBlank(flocker?.datasetName) && isBlank(flocker?.datasetUUID)
      ? [required(`${at}.flocker`, 'one of datasetName and datasetUUID is required')]
      : [],
  scaleIO: ({ scaleIO }, at) =>
    need(`${at}.scaleIO`, { gateway: scaleIO?.gateway, system: scaleIO?.system, volumeName: scaleIO?.volumeName }),
  csi: ({ csi }, at) => csiErrors(csi ?? {}, `${at}.csi`),
  ephemeral: ({ ephemeral }, at) => ephemeralErrors(ephemeral ?? {}, `${at}.ephemeral`),
  image: ({ image }, at) => [
    ...need(`${at}.image`, { reference: image?.reference }),
    ...(isBlank(image?.pullPolicy) || ['Always', 'IfNotPresent', 'Never'].includes(image?.pullPolicy ?? '')
      ? []
      : [unsupportedValue(`${at}.image.pullPolicy`, image?.pullPolicy, ['Always', 'IfNotPresent', 'Never'])]),
  ],
};

/** Only the first source is looked into; each further one is refused. */
function sourceErrors(volume: Volume, at: string): FieldError[] {
  const errors: FieldError[] = [];
  let count = 0;
  for (const [name, check] of Object.entries(SOURCES)) {
    if (volume[name as keyof Volume] === undefined) continue;
    if (count > 0) errors.push(forbidden(`${at}.${name}`, 'may not specify more than 1 volume type'));
    else errors.push(...check(volume, at));
    count++;
  }
  if (count === 0) errors.push(required(at, 'must specify a volume type'));
  return errors;
}

const HOST_PATH_TYPES = [
  '',
  'BlockDevice',
  'CharDevice',
  'Directory',
  'DirectoryOrCreate',
  'File',
  'FileOrCreate',
  'Socket',
];

export function hostPathErrors(
  source: { path?: string | undefined; type?: string | undefined },
  at: string,
): FieldError[] {
  if (isBlank(source.path)) return [required(`${at}.path`)];
  const errors: FieldError[] = [];
  if (source.path.split('/').includes('..')) errors.push(invalid(`${at}.path`, source.path, "must not contain '..'"));
  if (source.type !== undefined && !HOST_PATH_TYPES.includes(source.type))
    errors.push(unsupportedValue(`${at}.type`, source.type, HOST_PATH_TYPES));
  return errors;
}

function modeErrors(mode: number | undefined, field: string): FieldError[] {
  return mode !== undefined && (mode < 0 || mode > 0o777)
    ? [invalid(field, mode, 'must be a number between 0 and 0777 (octal), both inclusive')]
    : [];
}

function fileModeErrors(mode: number | undefined, field: string): FieldError[] {
  return modeErrors(mode, field);
}

/** A relative path that neither climbs nor hides behind `..`. */
function safePathErrors(target: string, field: string): FieldError[] {
  const errors = localPathErrors(target, field);
  if (target.startsWith('..') && !target.startsWith('../') && target !== '..')
    errors.push(invalid(field, target, "must not start with '..'"));
  return errors;
}

interface KeyToPath {
  key?: string | undefined;
  path?: string | undefined;
  mode?: number | undefined;
}

function keyToPathErrors(items: readonly KeyToPath[] | undefined, path: string): FieldError[] {
  const errors: FieldError[] = [];
  for (const [index, item] of (items ?? []).entries()) {
    const at = `${path}[${index}]`;
    if (isBlank(item.key)) errors.push(required(`${at}.key`));
    if (isBlank(item.path)) errors.push(required(`${at}.path`));
    errors.push(...safePathErrors(item.path ?? '', `${at}.path`), ...fileModeErrors(item.mode, `${at}.mode`));
  }
  return errors;
}

const DOWNWARD_FIELDS = [
  'metadata.annotations',
  'metadata.labels',
  'metadata.name',
  'metadata.namespace',
  'metadata.uid',
];

type DownwardItem = NonNullable<NonNullable<Volume['downwardAPI']>['items']>[number];

function downwardItemErrors(item: DownwardItem, at: string): FieldError[] {
  const errors: FieldError[] = [];
  if (isBlank(item.path)) errors.push(required(`${at}.path`));
  errors.push(...safePathErrors(item.path ?? '', `${at}.path`));
  if (item.fieldRef !== undefined) {
    errors.push(...fieldRefErrors(item.fieldRef, DOWNWARD_FIELDS, `${at}.fieldRef`, true));
    if (item.resourceFieldRef !== undefined)
      errors.push(invalid(at, 'resource', 'fieldRef and resourceFieldRef can not be specified simultaneously'));
  } else if (item.resourceFieldRef !== undefined) {
    errors.push(...resourceFieldErrors(item.resourceFieldRef, `${at}.resourceFieldRef`, { inVolume: true }));
  } else errors.push(required(at, 'one of fieldRef and resourceFieldRef is required'));
  errors.push(...fileModeErrors(item.mode, `${at}.mode`));
  return errors;
}

type Projection = NonNullable<NonNullable<Volume['projected']>['sources']>[number];

function projectionErrors(sources: readonly Projection[], at: string): FieldError[] {
  const errors: FieldError[] = [];
  const paths = new Set<string>();
  const take = (target: string | undefined, field: string): void => {
    if (isBlank(target)) return;
    if (paths.has(target)) errors.push(invalid(field, 'conflicting duplicate paths', ''));
    paths.add(target);
  };
  for (const [index, source] of sources.entries()) {
    const own = `${at}.sources[${index}]`;
    let count = 0;
    const one = (name: keyof Projection, check: () => void): void => {
      if (source[name] === undefined) return;
      count++;
      if (count > 1) errors.push(forbidden(`${own}.${name}`, 'may not specify more than 1 volume type per source'));
      else check();
    };
    one('secret', () => {
      errors.push(
        ...need(`${own}.secret`, { name: source.secret?.name }),
        ...keyToPathErrors(source.secret?.items, `${own}.secret.items`),
      );
      for (const item of source.secret?.items ?? []) take(item.path, at);
    });
    one('configMap', () => {
      errors.push(
        ...need(`${own}.configMap`, { name: source.configMap?.name }),
        ...keyToPathErrors(source.configMap?.items, `${own}.configMap.items`),
      );
      for (const item of source.configMap?.items ?? []) take(item.path, at);
    });
    one('downwardAPI', () => {
      for (const item of source.downwardAPI?.items ?? []) {
        errors.push(...downwardItemErrors(item, `${own}.downwardAPI`));
        take(item.path, at);
      }
    });
    one('serviceAccountToken', () =>
      errors.push(...tokenErrors(source.serviceAccountToken ?? {}, `${own}.serviceAccountToken`)),
    );
    if (count === 0 && source.clusterTrustBundle === undefined && source.podCertificate === undefined)
      errors.push(required(own, 'at least one of the volume projection sources must be specified'));
  }
  return errors;
}

const TEN_MINUTES = 600;
const LONGEST = 2 ** 32;

function tokenErrors(
  token: { expirationSeconds?: number | undefined; path?: string | undefined },
  at: string,
): FieldError[] {
  const errors: FieldError[] = [];
  const seconds = token.expirationSeconds ?? 0;
  if (seconds < TEN_MINUTES)
    errors.push(invalid(`${at}.expirationSeconds`, seconds, 'may not specify a duration less than 10 minutes'));
  if (seconds > LONGEST)
    errors.push(invalid(`${at}.expirationSeconds`, seconds, 'may not specify a duration larger than 2^32 seconds'));
  if (isBlank(token.path)) errors.push(required(`${at}.path`));
  else errors.push(...localPathErrors(token.path, `${at}.path`));
  return errors;
}

function iscsiErrors(source: NonNullable<Volume['iscsi']>, at: string): FieldError[] {
  const errors = need(at, { targetPortal: source.targetPortal, iqn: source.iqn });
  const { iqn = '', lun = 0 } = source;
  if (iqn !== '' && !/^(iqn\.\d{4}-\d{2}\.|eui\.[0-9A-Fa-f]{16}$|naa\.[0-9A-Fa-f]{32}$)/.test(iqn))
    errors.push(invalid(`${at}.iqn`, iqn, 'must be valid format'));
  errors.push(...inRange(`${at}.lun`, lun, 0, 255));
  if ((source.chapAuthDiscovery === true || source.chapAuthSession === true) && source.secretRef === undefined)
    errors.push(required(`${at}.secretRef`));
  return errors;
}

function csiErrors(source: NonNullable<Volume['csi']>, at: string): FieldError[] {
  const errors: FieldError[] = [];
  const { driver = '', nodePublishSecretRef: secret } = source;
  if (driver === '') errors.push(required(`${at}.driver`));
  else {
    if (driver.length > 63)
      errors.push(new FieldError('FieldValueTooLong', `${at}.driver`, '', 'may not be more than 63 bytes'));
    errors.push(...each(`${at}.driver`, driver, dnsSubdomainErrors(driver.toLowerCase())));
  }
  if (secret !== undefined && isBlank(secret.name)) errors.push(required(`${at}.nodePublishSecretRef.name`));
  return errors;
}

const ACCESS_MODES = ['ReadOnlyMany', 'ReadWriteMany', 'ReadWriteOnce', 'ReadWriteOncePod'];

function ephemeralErrors(source: NonNullable<Volume['ephemeral']>, at: string): FieldError[] {
  const template = source.volumeClaimTemplate;
  const path = `${at}.volumeClaimTemplate`;
  if (template === undefined) return [required(path)];
  const errors: FieldError[] = [
    ...validateLabels(template.metadata?.labels as Record<string, string> | undefined, `${path}.metadata.labels`),
    ...validateAnnotations(
      template.metadata?.annotations as Record<string, string> | undefined,
      `${path}.metadata.annotations`,
    ),
  ];
  for (const [field, value] of Object.entries(template.metadata ?? {})) {
    if (field !== 'labels' && field !== 'annotations' && value !== undefined && value !== null) {
      errors.push(forbidden(`${path}.${field}`, 'cannot be set for PVC template'));
    }
  }
  errors.push(...claimSpecErrors(template.spec ?? {}, `${path}.spec`));
  return errors;
}

export interface ClaimSpec {
  accessModes?: string[] | undefined;
  resources?: { requests?: Record<string, string | undefined> | undefined; limits?: unknown } | undefined;
  storageClassName?: string | undefined;
  volumeMode?: string | undefined;
}

/** What a claim must say: how it is accessed and how large it is. */
export function claimSpecErrors(spec: ClaimSpec, at: string): FieldError[] {
  const errors: FieldError[] = [];
  const modes = spec.accessModes ?? [];
  if (modes.length === 0) errors.push(required(`${at}.accessModes`, 'at least 1 access mode is required'));
  for (const mode of modes)
    if (!ACCESS_MODES.includes(mode)) errors.push(unsupportedValue(`${at}.accessModes`, mode, ACCESS_MODES));
  if (modes.includes('ReadWriteOncePod') && modes.length > 1) {
    errors.push(forbidden(`${at}.accessModes`, 'may not use ReadWriteOncePod with other access modes'));
  }
  const size = spec.resources?.requests?.['storage'];
  if (size === undefined) errors.push(required(`${at}.resources[storage]`));
  else if (parseQuantity(size).nano <= 0n)
    errors.push(invalid(`${at}.resources[storage]`, size, 'must be greater than zero'));
  const { storageClassName, volumeMode } = spec;
  if (!isBlank(storageClassName))
    errors.push(...each(`${at}.storageClassName`, storageClassName, dnsSubdomainErrors(storageClassName)));
  if (volumeMode !== undefined && !['Block', 'Filesystem'].includes(volumeMode))
    errors.push(unsupportedValue(`${at}.volumeMode`, volumeMode, ['Block', 'Filesystem']));
  return errors;
}
