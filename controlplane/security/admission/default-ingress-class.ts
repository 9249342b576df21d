/** DefaultIngressClass: an ingress without a class gets the newest class that is marked as default. */
import type { Ingress } from '../../../api/kinds/kinds.ts';
import { ingressClasses, ingresses } from '../../../api/client/resources.ts';
import { newestDefault } from './storage-defaults.ts';
import type { AdmissionPlugin } from './admission.ts';
import type { Listers } from '../../model/listers.ts';
import { isResource } from '../../../api/meta/group-resource.ts';
import { INGRESS_CLASS_ANNOTATION } from '../../../api/meta/well-known-labels.ts';

const DEFAULT = ['ingressclass.kubernetes.io/is-default-class'];

/**
 * Changes new ingresses without the annotation `kubernetes.io/ingress.class`. The first by name counts if default classes have
 * the same age.
 */
export function defaultIngressClass(listers: Listers): AdmissionPlugin {
  const lister = listers.of(ingressClasses);
  return {
    name: 'DefaultIngressClass',
    handles: (operation) => operation === 'CREATE',
    admit(attributes) {
      if (!isResource(attributes.resource, ingresses) || attributes.subresource !== '') return;
      const ingress = attributes.object as Ingress | undefined;
      if (ingress === undefined || ingress.metadata.annotations?.[INGRESS_CLASS_ANNOTATION] !== undefined) return;
      const spec = (ingress.spec ??= {});
      if (spec.ingressClassName !== undefined && spec.ingressClassName !== null) return;
      const found = newestDefault(lister.list(), DEFAULT);
      if (found?.metadata.name !== undefined) spec.ingressClassName = found.metadata.name;
    },
  };
}
