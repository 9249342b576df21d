/**
 * AlwaysPullImages: sets the pull policy of every container and image volume to Always, so that a pod cannot use an image of
 * the node without the right to pull it. Off by default.
 */
import { quoteText } from '../../../api/meta/quote.ts';
import type { Pod } from '../../../api/kinds/kinds.ts';
import { podOf, refusal, type PodSpec } from './pod-attributes.ts';
import { allContainers } from './pod-security/check.ts';
import type { AdmissionAttributes, AdmissionPlugin } from './admission.ts';

const ALWAYS = 'Always';

/** Creates the plugin. Its validating step refuses a container whose pull policy a later plugin changed. */
export function alwaysPullImages(): AdmissionPlugin {
  return {
    name: 'AlwaysPullImages',
    handles: (operation) => operation === 'CREATE' || operation === 'UPDATE',
    admit(attributes) {
      const spec = specOf(attributes);
      if (spec === undefined) return;
      for (const container of allContainers(spec)) container.imagePullPolicy = ALWAYS;
      for (const { image } of spec.volumes ?? []) if (image !== undefined && image !== null) image.pullPolicy = ALWAYS;
    },
    validate(attributes) {
      const spec = specOf(attributes);
      if (spec === undefined) return;
      const lists = [
        ['initContainers', spec.initContainers],
        ['containers', spec.containers],
      ] as const;
      for (const [field, list] of lists) {
        for (const [i, { imagePullPolicy = '' }] of (list ?? []).entries()) {
          if (imagePullPolicy === ALWAYS) continue;
          const at = `spec.${field}[${i}].imagePullPolicy`;
          throw refusal(
            attributes,
            `${at}: Unsupported value: ${quoteText(imagePullPolicy)}: supported values: "Always"`,
          );
        }
      }
    },
  };
}

/** Returns the spec of a new pod, or of a pod whose update names a new image. Returns `undefined` for other requests. */
function specOf(attributes: AdmissionAttributes): PodSpec | undefined {
  const spec = podOf(attributes)?.spec;
  if (spec === undefined || attributes.operation === 'CREATE') return spec;
  const old = (attributes.oldObject as Pod | undefined)?.spec;
  const oldImages = new Set(old === undefined ? [] : allContainers(old).map(({ image }) => image));
  return allContainers(spec).some(({ image }) => !oldImages.has(image)) ? spec : undefined;
}
