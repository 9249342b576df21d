/** The limits of kube-apiserver for claims and devices (`pkg/apis/resource`). Sizes are in bytes. */

/** The maximum number of pods or other consumers that may share a claim. */
export const MAX_CONSUMERS = 256;
/** The longest name of a driver. */
export const MAX_DRIVER_BYTES = 63;
/** The longest identifier of an attribute or a capacity, behind the domain and the slash. */
export const MAX_IDENTIFIER_BYTES = 32;
/** The maximum number of attributes and capacities of a device together. */
export const MAX_PROPERTIES = 32;
/** The longest text that is the value of an attribute. */
export const MAX_VALUE_BYTES = 64;
