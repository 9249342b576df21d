/** Validation of a pod's volumes: one source each, and what each source needs. */
import { duplicate, FieldError, forbidden, invalid, required, unsupportedValue } from '../meta/field-error.ts';
import { dnsLabelErrors, dnsSubdomainErrors } from '../meta/names.ts';
import { validateLabels } from '../meta/selector.ts';
import { validateAnnotations } from '../meta/validation.ts';
import { parseQuantity } from '../meta/quantity.ts';
import { claimSpecErrors } from './claim-validation.ts';
import type { VolumeKinds } from './container-context.ts';
import { fieldRefErrors, resourceFieldErrors } from './environment-validation.ts';
import { localPathErrors } from './mount-validation.ts';
import type { PodSpec, Volume } from './pod-types.ts';
import { each, inRange, isBlank } from './validation-rules.ts';

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
  azureDisk: ({ azureDisk }, at) => azureDiskErrors(azureDisk ?? {}, `${at}.azureDisk`),
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
    errors.push(...fieldRefErrors(item.fieldRef, DOWNWARD_FIELDS, `${at}.fieldRef`));
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
  const take = (target: string | undefined, shown: string | undefined): void => {
    if (isBlank(target)) return;
    if (paths.has(target)) errors.push(invalid(at, shown ?? '', 'conflicting duplicate paths'));
    paths.add(target);
  };
  for (const [index, source] of sources.entries()) {
    const own = `${at}.sources[${index}]`;
    const { secret, configMap, downwardAPI, serviceAccountToken: token } = source;
    for (const [name, projected] of [
      ['secret', secret],
      ['configMap', configMap],
    ] as const) {
      if (projected === undefined) continue;
      errors.push(
        ...need(`${own}.${name}`, { name: projected.name }),
        ...keyToPathErrors(projected.items, `${own}.${name}.items`),
      );
      for (const item of projected.items ?? []) take(item.path, projected.name);
    }
    for (const item of downwardAPI?.items ?? []) {
      errors.push(...downwardItemErrors(item, `${own}.downwardAPI`));
      take(item.path, item.path);
    }
    if (token !== undefined) errors.push(...tokenErrors(token, { at: `${own}.serviceAccountToken`, volume: at }));
    const given = [secret, configMap, downwardAPI, token].filter((one) => one !== undefined).length;
    if (given > 1) errors.push(forbidden(own, 'may not specify more than 1 volume type per source'));
  }
  return errors;
}

const TEN_MINUTES = 600;
const LONGEST = 2 ** 32;

/** The path's errors stand at the volume, not at the source. */
function tokenErrors(
  token: { expirationSeconds?: number | undefined; path?: string | undefined },
  { at, volume }: { readonly at: string; readonly volume: string },
): FieldError[] {
  const errors: FieldError[] = [];
  const seconds = token.expirationSeconds ?? 0;
  if (seconds < TEN_MINUTES)
    errors.push(invalid(`${at}.expirationSeconds`, seconds, 'may not specify a duration less than 10 minutes'));
  if (seconds > LONGEST)
    errors.push(invalid(`${at}.expirationSeconds`, seconds, 'may not specify a duration larger than 2^32 seconds'));
  if (isBlank(token.path)) errors.push(required(`${volume}.path`));
  else errors.push(...safePathErrors(token.path, `${volume}.path`));
  return errors;
}

const AZURE_CACHING = ['None', 'ReadOnly', 'ReadWrite'];
const AZURE_KINDS = ['Dedicated', 'Managed', 'Shared'];
const AZURE_MANAGED = '/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}';
const AZURE_BLOB = 'https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd';

function azureDiskErrors(disk: NonNullable<Volume['azureDisk']>, at: string): FieldError[] {
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
      errors.push(forbidden(`${path}.metadata.${field}`, 'cannot be set'));
    }
  }
  errors.push(...claimSpecErrors(template.spec ?? {}, `${path}.spec`));
  return errors;
}
