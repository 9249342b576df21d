/**
 * Validates the source of a persistent volume. A volume has exactly one source. The rows have the order in which kube-apiserver
 * reports errors.
 */
import type { V1PersistentVolumeSpec } from '@kubernetes/client-node';
import {
  azureDiskErrors,
  cinderErrors,
  fibreChannelErrors,
  flexErrors,
  flockerErrors,
  iscsiErrors,
  need,
  partitionErrors,
  quobyteErrors,
  storageOsErrors,
} from '../../../../api/kinds/volume-source-validation.ts';
import type { Wire } from '../../../../api/kinds/wire.ts';
import { driverNameErrors, hostPathErrors } from '../../../../api/kinds/volume-validation.ts';
import { type FieldError, forbidden, invalid, required } from '../../../../api/meta/field-error.ts';
import { dnsLabelErrors, dnsSubdomainErrors } from '../../../../api/meta/names.ts';
import { invalidFor } from '../../../../api/kinds/validation-rules.ts';

export type VolumeSpec = Wire<V1PersistentVolumeSpec>;

const isBlank = (value: string | null | undefined): boolean => value === undefined || value === null || value === '';

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

/** Validates one source of a spec. `at` is the path of the source, and `name` is the name of the volume. */
type Check = (spec: VolumeSpec, at: string, name: string) => FieldError[];

const CHECKS = {
  hostPath: ({ hostPath }, at) => hostPathErrors(hostPath ?? {}, at),
  gcePersistentDisk: ({ gcePersistentDisk: disk }, at) => {
    // kube-apiserver reports an older name of the field.
    const field = at.replace(/gcePersistentDisk$/, 'persistentDisk');
    return [...need(field, { pdName: disk?.pdName }), ...partitionErrors(field, disk?.partition)];
  },
  awsElasticBlockStore: ({ awsElasticBlockStore: disk }, at) => [
    ...need(at, { volumeID: disk?.volumeID }),
    ...partitionErrors(at, disk?.partition),
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
  flocker: ({ flocker = {} }, at) => flockerErrors(flocker, at),
  nfs: ({ nfs }, at) => [
    ...need(at, { server: nfs?.server, path: nfs?.path }),
    ...((nfs?.path ?? '').startsWith('/') ? [] : [invalid(`${at}.path`, nfs?.path ?? '', 'must be an absolute path')]),
  ],
  rbd: ({ rbd }, at) => [...needSome(`${at}.monitors`, rbd?.monitors), ...need(at, { image: rbd?.image })],
  quobyte: ({ quobyte = {} }, at) => quobyteErrors(quobyte, at),
  cephfs: ({ cephfs }, at) => needSome(`${at}.monitors`, cephfs?.monitors),
  iscsi: ({ iscsi = {} }, at, name) => iscsiErrors(iscsi, at, name),
  cinder: ({ cinder = {} }, at) => cinderErrors(cinder, at, { withNamespace: true }),
  fc: ({ fc = {} }, at) => fibreChannelErrors(fc, at),
  flexVolume: ({ flexVolume = {} }, at) => flexErrors(flexVolume, at),
  azureFile: ({ azureFile }, at) => [
    ...need(at, { secretName: azureFile?.secretName, shareName: azureFile?.shareName }),
    ...(azureFile?.secretNamespace === '' ? [required(`${at}.secretNamespace`)] : []),
  ],
  vsphereVolume: ({ vsphereVolume }, at) => need(at, { volumePath: vsphereVolume?.volumePath }),
  photonPersistentDisk: ({ photonPersistentDisk }, at) => need(at, { pdID: photonPersistentDisk?.pdID }),
  portworxVolume: ({ portworxVolume }, at) => need(at, { volumeID: portworxVolume?.volumeID }),
  azureDisk: ({ azureDisk = {} }, at) => azureDiskErrors(azureDisk, at),
  scaleIO: ({ scaleIO }, at) =>
    need(at, { gateway: scaleIO?.gateway, system: scaleIO?.system, volumeName: scaleIO?.volumeName }),
  local: ({ local, nodeAffinity }, at) => [
    ...(isBlank(local?.path) ? [required(`${at}.path`)] : noBackSteps(`${at}.path`, local?.path ?? '')),
    ...(nodeAffinity === undefined
      ? [required(at.replace(/local$/, 'nodeAffinity'), 'Local volume requires node affinity')]
      : []),
  ],
  storageos: ({ storageos = {} }, at) => storageOsErrors(storageos, at, { withNamespace: true }),
  csi: ({ csi }, at) => csiErrors(csi ?? {}, at),
} as const satisfies Partial<Record<keyof VolumeSpec, Check>>;

/** The names of the source fields, in the order of their checks. */
export const VOLUME_SOURCES = Object.keys(CHECKS) as (keyof typeof CHECKS)[];

/** Validates the first source and refuses every further one, except for `flexVolume`, which kube-apiserver does not refuse. */
export function volumeSourceErrors(spec: VolumeSpec, at: string, volume: string): FieldError[] {
  const errors: FieldError[] = [];
  let count = 0;
  for (const name of VOLUME_SOURCES) {
    if (spec[name] === undefined) continue;
    count++;
    if (count > 1 && name !== 'flexVolume') {
      const field = `${at}.${name === 'cephfs' ? 'cephFS' : name}`;
      errors.push(forbidden(field, 'may not specify more than 1 volume type'));
    } else errors.push(...CHECKS[name](spec, `${at}.${name}`, volume));
  }
  if (count === 0) errors.push(required(at, 'must specify a volume type'));
  return errors;
}
