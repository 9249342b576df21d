/**
 * Defines the strategy of volume attachments. The spec requests the attachment of a volume to a node, and the status has the
 * driver's result.
 */
import type { V1VolumeAttachmentSpec, V1VolumeAttachmentStatus } from '@kubernetes/client-node';
import { driverNameErrors } from '../../../../api/kinds/volume-validation.ts';
import type { Kind } from '../../../../api/kinds/wire.ts';
import { type FieldError, forbidden, invalid, required, tooLong } from '../../../../api/meta/field-error.ts';
import { jsonEqual } from '../../../../api/meta/json-equality.ts';
import { rangeError } from '../../../../api/meta/names.ts';
import { internalForm } from '../../../../api/schema/internal-form.ts';
import { restore, statusWithoutMetadata } from '../../generic-strategy.ts';
import type { Strategy, UpdateStrategy } from '../../strategy.ts';
import { volumeSpecErrors } from '../core/persistent-volumes.ts';
import { dnsSubdomain, IMMUTABLE } from '../field-rules.ts';
import { attachmentColumns } from './columns.ts';
import { INT32_MAX } from '../../../../api/meta/integers.ts';

type Attachment = Kind<{ spec: V1VolumeAttachmentSpec; status: V1VolumeAttachmentStatus }>;

const MAX_METADATA_BYTES = 256 * 1024;
const MAX_MESSAGE_BYTES = 1024;

function attachmentSpecErrors(object: Attachment): FieldError[] {
  const { attacher, source, nodeName = '' } = object.spec ?? {};
  const errors = driverNameErrors('spec.attacher', attacher);
  const { persistentVolumeName: name, inlineVolumeSpec: inline } = source ?? {};
  const either = 'must specify exactly one of inlineVolumeSpec and persistentVolumeName';
  if (inline === undefined && name === undefined) errors.push(required('spec.source', either));
  else if (inline !== undefined && name !== undefined) errors.push(forbidden('spec.source', either));
  else if (name === '')
    errors.push(required('spec.source.persistentVolumeName', 'must specify non empty persistentVolumeName'));
  else if (inline !== undefined)
    errors.push(...volumeSpecErrors(inline, 'spec.source.inlineVolumeSpec', { inline: true }));
  errors.push(...dnsSubdomain('spec.nodeName', nodeName));
  return errors;
}

function attachmentErrors(object: Attachment): FieldError[] {
  const name = object.spec?.source?.persistentVolumeName;
  const ofName = name === undefined ? [] : dnsSubdomain('spec.source.persistentVolumeName', name);
  return [...attachmentSpecErrors(object), ...attachmentStatusErrors(object), ...ofName];
}

function attachmentStatusErrors(object: Attachment): FieldError[] {
  const errors: FieldError[] = [];
  const metadata = object.status?.attachmentMetadata ?? {};
  const texts = Object.entries(metadata).flatMap(([key, value = '']) => [key, value]);
  const sizeBytes = texts.reduce((sum, text) => sum + Buffer.byteLength(text), 0);
  if (sizeBytes > MAX_METADATA_BYTES) errors.push(tooLong('status.attachmentMetadata', MAX_METADATA_BYTES));
  for (const field of ['attachError', 'detachError'] as const) {
    // kube-apiserver names the limit of the metadata in this error.
    if (Buffer.byteLength(object.status?.[field]?.message ?? '') > MAX_MESSAGE_BYTES)
      errors.push(tooLong(`status.${field}.message`, MAX_METADATA_BYTES));
    const code = object.status?.[field]?.errorCode;
    if (code !== undefined && code < 0)
      errors.push(invalid(`status.${field}.errorCode`, code, rangeError(0, INT32_MAX)));
  }
  return errors;
}

export const attachments: Strategy<Attachment> = {
  metadataChecks: ['whole'],
  requiresResourceVersion: true,
  applyDefaults({ spec }) {
    const hostPath = spec?.source?.inlineVolumeSpec?.hostPath;
    if (hostPath !== undefined) hostPath.type ??= '';
  },
  prepareForCreate: (object) => void (object.status = { attached: false }),
  prepareForUpdate: (object, old) => restore(object, old, 'status'),
  validateCreate: attachmentErrors,
  validateUpdate: (object, old) => [
    ...attachmentErrors(object),
    ...(jsonEqual(object.spec, old.spec)
      ? []
      : [invalid('spec', internalForm('io.k8s.api.storage.v1.VolumeAttachmentSpec', object.spec), IMMUTABLE)]),
  ],
  returnsDeleted: true,
  resetFields: [['status']],
  columns: attachmentColumns,
  status: { ...(statusWithoutMetadata as UpdateStrategy<Attachment>), validateUpdate: attachmentStatusErrors },
};
