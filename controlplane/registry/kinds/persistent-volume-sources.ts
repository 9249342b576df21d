/** Where a volume's storage is: exactly one source, and what each needs. The order is that in which errors are listed. */
import { hostPathErrors } from '../../../api/kinds/volume-validation.ts';
import { tooLong, type FieldError } from '../../../api/meta/field-error.ts';
import { dnsLabelErrors, dnsSubdomainErrors } from '../../../api/meta/names.ts';
import { forbidden, invalid, invalidFor, required, within } from './field-rules.ts';
import type { VolumeSpec } from './persistent-volumes.ts';

type Fields = Readonly<Record<string, string | undefined>>;

const isBlank = (value: string | null | undefined): boolean => value === undefined || value === null || value === '';

const need = (at: string, fields: Fields): FieldError[] =>
  Object.entries(fields).flatMap(([name, value]) => (isBlank(value) ? [required(`${at}.${name}`)] : []));

const needSome = (field: string, items: readonly string[] | undefined, detail = ''): FieldError[] =>
  (items ?? []).length === 0 ? [required(field, detail)] : [];

type Secret = { name?: string | undefined; namespace?: string | undefined } | undefined;

function secretErrors(secret: Secret, at: string): FieldError[] {
  if (secret === undefined) return [];
  const { name = '', namespace = '' } = secret;
  return [
    ...(name === '' ? [required(`${at}.name`)] : invalidFor(`${at}.name`, name, dnsSubdomainErrors(name))),
    ...(namespace === ''
      ? [required(`${at}.namespace`)]
      : invalidFor(`${at}.namespace`, namespace, dnsLabelErrors(namespace))),
  ];
}

/** A name of a CSI driver: a domain of at most 63 characters, upper case allowed. */
export function driverNameErrors(field: string, name: string | undefined): FieldError[] {
  if (name === undefined || name === '') return [required(field)];
  return [
    ...(name.length > 63 ? [tooLong(field, 63)] : []),
    ...invalidFor(field, name, dnsSubdomainErrors(name.toLowerCase())),
  ];
}

function noBackSteps(field: string, target: string): FieldError[] {
  return target.split('/').includes('..') ? [invalid(field, target, "must not contain '..'")] : [];
}

function csiErrors(csi: NonNullable<VolumeSpec['csi']>, at: string): FieldError[] {
  return [
    ...driverNameErrors(`${at}.driver`, csi.driver),
    ...need(at, { volumeHandle: csi.volumeHandle }),
    ...secretErrors(csi.controllerPublishSecretRef, `${at}.controllerPublishSecretRef`),
    ...secretErrors(csi.controllerExpandSecretRef, `${at}.controllerExpandSecretRef`),
    ...secretErrors(csi.nodePublishSecretRef, `${at}.nodePublishSecretRef`),
    ...secretErrors(csi.nodeExpandSecretRef, `${at}.nodeExpandSecretRef`),
  ];
}

function iscsiErrors(source: NonNullable<VolumeSpec['iscsi']>, at: string): FieldError[] {
  const { iqn = '', chapAuthDiscovery, chapAuthSession, secretRef, initiatorName } = source;
  const format = /^(iqn\.\d{4}-\d{2}\.|eui\.[0-9A-Fa-f]{16}$|naa\.[0-9A-Fa-f]{32}$)/;
  const errors = need(at, { targetPortal: source.targetPortal, iqn });
  if (iqn !== '' && !format.test(iqn)) errors.push(invalid(`${at}.iqn`, iqn, 'must be valid format'));
  errors.push(...within(`${at}.lun`, source.lun ?? 0, 0, 255));
  if ((chapAuthDiscovery === true || chapAuthSession === true) && secretRef === undefined)
    errors.push(required(`${at}.secretRef`));
  if (secretRef !== undefined) {
    if (isBlank(secretRef.name)) errors.push(required(`${at}.secretRef.name`));
  }
  if (initiatorName !== undefined && !format.test(initiatorName))
    errors.push(invalid(`${at}.initiatorname`, initiatorName, 'must be valid format'));
  return errors;
}

function fibreErrors(source: NonNullable<VolumeSpec['fc']>, at: string): FieldError[] {
  const names = (source.targetWWNs ?? []).length;
  const ids = (source.wwids ?? []).length;
  if (names === 0 && ids === 0)
    return [required(`${at}.targetWWNs`, 'must specify either targetWWNs or wwids, but not both')];
  if (names > 0 && ids > 0)
    return [invalid(`${at}.targetWWNs`, source.targetWWNs, 'targetWWNs and wwids can not be specified simultaneously')];
  if (names === 0) return [];
  if (source.lun === undefined) return [required(`${at}.lun`, 'lun is required if targetWWNs is specified')];
  return within(`${at}.lun`, source.lun, 0, 255);
}

const DISK_CACHING = ['None', 'ReadOnly', 'ReadWrite'];
const DISK_KINDS = ['Dedicated', 'Managed', 'Shared'];

function azureDiskErrors(source: NonNullable<VolumeSpec['azureDisk']>, at: string): FieldError[] {
  const { diskURI = '', cachingMode, kind } = source;
  const errors = need(at, { diskName: source.diskName, diskURI });
  if (cachingMode !== undefined && !DISK_CACHING.includes(cachingMode))
    errors.push(invalid(`${at}.cachingMode`, cachingMode, `supported values: ${DISK_CACHING.join(', ')}`));
  if (kind !== undefined && !DISK_KINDS.includes(kind))
    errors.push(invalid(`${at}.kind`, kind, `supported values: ${DISK_KINDS.join(', ')}`));
  if (kind === 'Managed' && !diskURI.startsWith('/subscriptions/'))
    errors.push(invalid(`${at}.diskURI`, diskURI, 'must be a managed disk'));
  if (kind !== 'Managed' && diskURI !== '' && !diskURI.startsWith('https://'))
    errors.push(invalid(`${at}.diskURI`, diskURI, 'must be a blob disk'));
  return errors;
}

type Check = (spec: VolumeSpec, at: string) => FieldError[];

const CHECKS = {
  hostPath: ({ hostPath }, at) => hostPathErrors(hostPath ?? {}, at),
  gcePersistentDisk: ({ gcePersistentDisk: disk }, at) => [
    ...need(at, { pdName: disk?.pdName }),
    ...within(`${at}.partition`, disk?.partition ?? 0, 0, 255),
  ],
  awsElasticBlockStore: ({ awsElasticBlockStore: disk }, at) => [
    ...need(at, { volumeID: disk?.volumeID }),
    ...within(`${at}.partition`, disk?.partition ?? 0, 0, 255),
  ],
  glusterfs: ({ glusterfs }, at) => {
    const errors = need(at, { endpoints: glusterfs?.endpoints, path: glusterfs?.path });
    const namespace = glusterfs?.endpointsNamespace;
    if (namespace === '')
      errors.push(
        invalid(
          `${at}.endpointsNamespace`,
          namespace,
          'if the endpointnamespace is set, it must be a valid namespace name',
        ),
      );
    else if (namespace !== undefined)
      errors.push(...invalidFor(`${at}.endpointsNamespace`, namespace, dnsLabelErrors(namespace)));
    return errors;
  },
  flocker: ({ flocker }, at) =>
    isBlank(flocker?.datasetName) && isBlank(flocker?.datasetUUID)
      ? [required(at, 'one of datasetName and datasetUUID is required')]
      : [],
  nfs: ({ nfs }, at) => [
    ...need(at, { server: nfs?.server, path: nfs?.path }),
    ...((nfs?.path ?? '').startsWith('/') ? [] : [invalid(`${at}.path`, nfs?.path ?? '', 'must be an absolute path')]),
  ],
  rbd: ({ rbd }, at) => [...needSome(`${at}.monitors`, rbd?.monitors), ...need(at, { image: rbd?.image })],
  quobyte: ({ quobyte }, at) => need(at, { registry: quobyte?.registry, volume: quobyte?.volume }),
  cephfs: ({ cephfs }, at) => needSome(`${at}.monitors`, cephfs?.monitors),
  iscsi: ({ iscsi }, at) => iscsiErrors(iscsi ?? {}, at),
  cinder: ({ cinder }, at) => [
    ...need(at, { volumeID: cinder?.volumeID }),
    ...(cinder?.secretRef === undefined
      ? []
      : need(`${at}.secretRef`, { name: cinder.secretRef.name, namespace: cinder.secretRef.namespace })),
  ],
  fc: ({ fc }, at) => fibreErrors(fc ?? {}, at),
  flexVolume: ({ flexVolume }, at) => need(at, { driver: flexVolume?.driver }),
  azureFile: ({ azureFile }, at) => [
    ...need(at, { secretName: azureFile?.secretName, shareName: azureFile?.shareName }),
    ...(azureFile?.secretNamespace === '' ? [required(`${at}.secretNamespace`)] : []),
  ],
  vsphereVolume: ({ vsphereVolume }, at) => need(at, { volumePath: vsphereVolume?.volumePath }),
  photonPersistentDisk: ({ photonPersistentDisk }, at) => need(at, { pdID: photonPersistentDisk?.pdID }),
  portworxVolume: ({ portworxVolume }, at) => need(at, { volumeID: portworxVolume?.volumeID }),
  azureDisk: ({ azureDisk }, at) => azureDiskErrors(azureDisk ?? {}, at),
  scaleIO: ({ scaleIO }, at) =>
    need(at, { gateway: scaleIO?.gateway, system: scaleIO?.system, volumeName: scaleIO?.volumeName }),
  local: ({ local, nodeAffinity }, at) => [
    ...(isBlank(local?.path) ? [required(`${at}.path`)] : noBackSteps(`${at}.path`, local?.path ?? '')),
    ...(nodeAffinity === undefined
      ? [required(at.replace(/local$/, 'nodeAffinity'), 'Local volume requires node affinity')]
      : []),
  ],
  storageos: ({ storageos }, at) => need(at, { volumeName: storageos?.volumeName }),
  csi: ({ csi }, at) => csiErrors(csi ?? {}, at),
} as const satisfies Partial<Record<keyof VolumeSpec, Check>>;

export const VOLUME_SOURCES = Object.keys(CHECKS) as (keyof typeof CHECKS)[];

/** Only the first source is looked into; each further one is refused. */
export function volumeSourceErrors(spec: VolumeSpec, at: string): FieldError[] {
  const errors: FieldError[] = [];
  let count = 0;
  for (const name of VOLUME_SOURCES) {
    if (spec[name] === undefined) continue;
    count++;
    if (count > 1) errors.push(forbidden(`${at}.${name}`, 'may not specify more than 1 volume type'));
    else errors.push(...CHECKS[name](spec, `${at}.${name}`));
  }
  if (count === 0) errors.push(required(at, 'must specify a volume type'));
  return errors;
}
