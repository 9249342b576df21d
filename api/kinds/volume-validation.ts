/** Validates the volumes of a pod: every volume has exactly one source, and the source is valid. */
import { quoteText } from '../meta/quote.ts';
import {
  duplicate,
  forbidden,
  invalid,
  required,
  tooLong,
  unsupportedValue,
  type FieldError,
} from '../meta/field-error.ts';
import { dnsLabelErrors, dnsSubdomainErrors } from '../meta/names.ts';
import { parseQuantity } from '../meta/quantity.ts';
import { claimSpecErrors } from './claim-validation.ts';
import type { VolumeKinds } from './container-context.ts';
import { fieldRefErrors, resourceFieldErrors } from './environment-validation.ts';
import { localPathErrors } from './mount-validation.ts';
import type { PodSpec, Volume } from './pod-types.ts';
import { tokenLifetimeErrors } from './token-lifetime.ts';
import { invalidFor, isBlank } from './validation-rules.ts';
import {
  azureDiskErrors,
  cinderErrors,
  fibreChannelErrors,
  flexErrors,
  flockerErrors,
  iscsiErrors,
  need,
  partitionErrors,
  portalLengthErrors,
  quobyteErrors,
  storageOsErrors,
} from './volume-source-validation.ts';
import { templateMetadataErrors } from './template-metadata-validation.ts';

interface CheckedVolumes {
  /** The kinds, by name, of the volumes whose name and source are valid. Containers can mount only these. */
  readonly kinds: VolumeKinds;
  readonly errors: FieldError[];
}

/**
 * Validates the volumes of a pod, and returns what each is for the validation of mounts. `podName` is the name of the pod,
 * which prefixes the claims of ephemeral volumes. It is empty for a template.
 */
export function checkVolumes(
  spec: PodSpec,
  path: string,
  { podName = '' }: { readonly podName?: string },
): CheckedVolumes {
  const errors: FieldError[] = [];
  const kinds = new Map<string, string>();
  const volumes = spec.volumes ?? [];
  const createdClaims = new Set(
    podName === '' ? [] : volumes.flatMap(({ name = '', ephemeral }) => (ephemeral ? [`${podName}-${name}`] : [])),
  );
  for (const [index, volume] of volumes.entries()) {
    const at = `${path}[${index}]`;
    const volumeErrors = sourceErrors(volume, at, podName);
    const { name = '' } = volume;
    if (name === '') volumeErrors.push(required(`${at}.name`));
    else volumeErrors.push(...invalidFor(`${at}.name`, name, dnsLabelErrors(name)));
    if (kinds.has(name)) volumeErrors.push(duplicate(`${at}.name`, name));
    if (volumeErrors.length === 0) kinds.set(name, Object.keys(volume).find((key) => key !== 'name') ?? '');
    errors.push(...volumeErrors);
    const claimName = volume.persistentVolumeClaim?.claimName;
    if (claimName !== undefined && createdClaims.has(claimName)) {
      const text = 'must not reference a PVC that gets created for an ephemeral volume';
      errors.push(invalid(`${at}.persistentVolumeClaim.claimName`, claimName, text));
    }
  }
  return { kinds, errors };
}

/** `podName` is empty for a template. */
type Check = (volume: Volume, at: string, podName: string) => FieldError[];

/** The checks in the order in which kube-apiserver validates the sources. */
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
    ...need(`${at}.persistentDisk`, { pdName: disk?.pdName }),
    ...partitionErrors(`${at}.persistentDisk`, disk?.partition),
  ],
  awsElasticBlockStore: ({ awsElasticBlockStore: disk }, at) => [
    ...need(`${at}.awsElasticBlockStore`, { volumeID: disk?.volumeID }),
    ...partitionErrors(`${at}.awsElasticBlockStore`, disk?.partition),
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
  iscsi: ({ iscsi = {}, name = '' }, at) => [
    ...iscsiErrors(iscsi, `${at}.iscsi`),
    ...portalLengthErrors(`${at}.name`, name, iscsi, name),
  ],
  glusterfs: ({ glusterfs }, at) => need(`${at}.glusterfs`, { endpoints: glusterfs?.endpoints, path: glusterfs?.path }),
  flocker: ({ flocker = {} }, at) => flockerErrors(flocker, `${at}.flocker`),
  persistentVolumeClaim: ({ persistentVolumeClaim: claim }, at) =>
    need(`${at}.persistentVolumeClaim`, { claimName: claim?.claimName }),
  rbd: ({ rbd }, at) => [
    ...((rbd?.monitors ?? []).length === 0 ? [required(`${at}.rbd.monitors`)] : []),
    ...need(`${at}.rbd`, { image: rbd?.image }),
  ],
  cinder: ({ cinder = {} }, at) => cinderErrors(cinder, `${at}.cinder`, { withNamespace: false }),
  cephfs: ({ cephfs }, at) => ((cephfs?.monitors ?? []).length === 0 ? [required(`${at}.cephfs.monitors`)] : []),
  quobyte: ({ quobyte = {} }, at) => quobyteErrors(quobyte, `${at}.quobyte`),
  downwardAPI: ({ downwardAPI }, at) => [
    ...modeErrors(downwardAPI?.defaultMode, `${at}.downwardAPI.defaultMode`),
    ...(downwardAPI?.items ?? []).flatMap((item) => downwardItemErrors(item, `${at}.downwardAPI`)),
  ],
  fc: ({ fc = {} }, at) => fibreChannelErrors(fc, `${at}.fc`),
  flexVolume: ({ flexVolume = {} }, at) => flexErrors(flexVolume, `${at}.flexVolume`),
  configMap: ({ configMap }, at) => [
    ...need(`${at}.configMap`, { name: configMap?.name }),
    ...modeErrors(configMap?.defaultMode, `${at}.configMap.defaultMode`),
    ...keyToPathErrors(configMap?.items, `${at}.configMap.items`),
  ],
  azureFile: ({ azureFile }, at) =>
    need(`${at}.azureFile`, { secretName: azureFile?.secretName, shareName: azureFile?.shareName }),
  vsphereVolume: ({ vsphereVolume }, at) => need(`${at}.vsphereVolume`, { volumePath: vsphereVolume?.volumePath }),
  photonPersistentDisk: ({ photonPersistentDisk }, at) =>
    need(`${at}.photonPersistentDisk`, { pdID: photonPersistentDisk?.pdID }),
  portworxVolume: ({ portworxVolume }, at) => need(`${at}.portworxVolume`, { volumeID: portworxVolume?.volumeID }),
  azureDisk: ({ azureDisk = {} }, at) => azureDiskErrors(azureDisk, `${at}.azureDisk`),
  storageos: ({ storageos = {} }, at) => storageOsErrors(storageos, `${at}.storageos`, { withNamespace: false }),
  projected: ({ projected }, at) => [
    ...modeErrors(projected?.defaultMode, `${at}.projected.defaultMode`),
    ...projectionErrors(projected?.sources ?? [], `${at}.projected`),
  ],
  scaleIO: ({ scaleIO }, at) =>
    need(`${at}.scaleIO`, { gateway: scaleIO?.gateway, system: scaleIO?.system, volumeName: scaleIO?.volumeName }),
  csi: ({ csi }, at) => csiErrors(csi ?? {}, `${at}.csi`),
  ephemeral: ({ ephemeral, name = '' }, at, podName) => [
    ...ephemeralErrors(ephemeral ?? {}, `${at}.ephemeral`),
    ...claimNameErrors(podName, name, `${at}.name`),
  ],
  image: ({ image }, at, podName) => [
    // A template may omit the image. The creator of its pods can set it.
    ...(podName === '' ? [] : need(`${at}.image`, { reference: image?.reference })),
    ...(isBlank(image?.pullPolicy) || ['Always', 'IfNotPresent', 'Never'].includes(image?.pullPolicy ?? '')
      ? []
      : [unsupportedValue(`${at}.image.pullPolicy`, image?.pullPolicy, ['Always', 'IfNotPresent', 'Never'])]),
  ],
};

/** Validates the name of the claim that is created for an ephemeral volume. */
function claimNameErrors(podName: string, volume: string, field: string): FieldError[] {
  if (podName === '' || volume === '') return [];
  const claim = `${podName}-${volume}`;
  return dnsSubdomainErrors(claim).map((text) => invalid(field, volume, `PVC name ${quoteText(claim)}: ${text}`));
}

/** kube-apiserver's names of additional sources in errors, where they differ from the field names. */
const FURTHER: ReadonlyMap<string, string> = new Map(Object.entries({ cephfs: 'cephFS', downwardAPI: 'downwarAPI' }));

const SOURCE_CHECKS: ReadonlyMap<string, Check> = new Map(Object.entries(SOURCES));
const SOURCE_NAMES = [...SOURCE_CHECKS.keys()];

/** Validates the first source only, and reports each additional one. */
function sourceErrors(volume: Volume, at: string, podName: string): FieldError[] {
  const given = Object.keys(volume).filter(
    (name) => SOURCE_CHECKS.has(name) && volume[name as keyof Volume] !== undefined,
  );
  const [first, ...further] =
    given.length > 1 ? given.sort((a, b) => SOURCE_NAMES.indexOf(a) - SOURCE_NAMES.indexOf(b)) : given;
  const check = SOURCE_CHECKS.get(first ?? '');
  if (check === undefined) return [required(at, 'must specify a volume type')];
  const errors = check(volume, at, podName);
  for (const name of further)
    errors.push(forbidden(`${at}.${FURTHER.get(name) ?? name}`, 'may not specify more than 1 volume type'));
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

/** Needs a path without `..`, and a known type. */
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

/** Validates a relative path without `..` elements. The path `..` itself has both errors, as in kube-apiserver. */
function safePathErrors(target: string, field: string): FieldError[] {
  const errors = localPathErrors(target, field);
  if (target.startsWith('..') && !target.startsWith('../'))
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
    errors.push(...safePathErrors(item.path ?? '', `${at}.path`), ...modeErrors(item.mode, `${at}.mode`));
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
  errors.push(...modeErrors(item.mode, `${at}.mode`));
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
    const sourcePath = `${at}.sources[${index}]`;
    const { secret, configMap, downwardAPI, serviceAccountToken: token } = source;
    for (const [name, projected] of [
      ['secret', secret],
      ['configMap', configMap],
    ] as const) {
      if (projected === undefined) continue;
      errors.push(
        ...need(`${sourcePath}.${name}`, { name: projected.name }),
        ...keyToPathErrors(projected.items, `${sourcePath}.${name}.items`),
      );
      for (const item of projected.items ?? []) take(item.path, projected.name);
    }
    for (const item of downwardAPI?.items ?? []) {
      errors.push(...downwardItemErrors(item, `${sourcePath}.downwardAPI`));
      take(item.path, item.path);
    }
    if (token !== undefined)
      errors.push(...tokenErrors(token, { at: `${sourcePath}.serviceAccountToken`, volume: at }));
    const given = [secret, configMap, downwardAPI, token].filter((one) => one !== undefined).length;
    if (given > 1) errors.push(forbidden(sourcePath, 'may not specify more than 1 volume type per source'));
  }
  return errors;
}

/** Reports errors of the path at the volume instead of the source. */
function tokenErrors(
  token: { expirationSeconds?: number | undefined; path?: string | undefined },
  { at, volume }: { readonly at: string; readonly volume: string },
): FieldError[] {
  const errors = tokenLifetimeErrors(`${at}.expirationSeconds`, token.expirationSeconds ?? 0);
  if (isBlank(token.path)) errors.push(required(`${volume}.path`));
  else errors.push(...safePathErrors(token.path, `${volume}.path`));
  return errors;
}

const MAX_DRIVER_LENGTH = 63;

/** Validates the name of a CSI driver: a domain of at most `MAX_DRIVER_LENGTH` characters, which may be capitals. */
export function driverNameErrors(field: string, name = ''): FieldError[] {
  if (name === '') return [required(field)];
  return [
    ...(name.length > MAX_DRIVER_LENGTH ? [tooLong(field, MAX_DRIVER_LENGTH)] : []),
    ...invalidFor(field, name, dnsSubdomainErrors(name.toLowerCase())),
  ];
}

function csiErrors({ driver, nodePublishSecretRef: secret }: NonNullable<Volume['csi']>, at: string): FieldError[] {
  const errors = driverNameErrors(`${at}.driver`, driver);
  if (secret === undefined) return errors;
  const { name = '' } = secret;
  if (name === '') errors.push(required(`${at}.nodePublishSecretRef.name`));
  else errors.push(...invalidFor(`${at}.name`, name, dnsSubdomainErrors(name)));
  return errors;
}

function ephemeralErrors(source: NonNullable<Volume['ephemeral']>, at: string): FieldError[] {
  const template = source.volumeClaimTemplate;
  const path = `${at}.volumeClaimTemplate`;
  if (template === undefined) return [required(path)];
  return [
    ...templateMetadataErrors(template.metadata, `${path}.metadata`),
    ...claimSpecErrors(template.spec ?? {}, `${path}.spec`),
  ];
}
