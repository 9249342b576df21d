/** Names the annotations of pods that both the agent and the API server interpret. */

/** The source of a pod: `api`, `file`, `http` or `submitted`. Absent means `api`. */
export const SOURCE_ANNOTATION = 'kubernetes.io/config.source';
/** The hash of the static pod that a mirror pod shows. Only mirror pods have it. */
export const MIRROR_ANNOTATION = 'kubernetes.io/config.mirror';
/** The seccomp profile of all containers, before Kubernetes 1.19 had a field for it. */
export const SECCOMP_POD_ANNOTATION = 'seccomp.security.alpha.kubernetes.io/pod';
/** The prefix of the annotation with the seccomp profile of one container, whose name follows. */
export const SECCOMP_CONTAINER_PREFIX = 'container.seccomp.security.alpha.kubernetes.io/';
/** The prefix of the annotation with the AppArmor profile of one container, whose name follows. */
export const APP_ARMOR_PREFIX = 'container.apparmor.security.beta.kubernetes.io/';
