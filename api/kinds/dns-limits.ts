/** Defines the limits of a pod's resolver configuration. */

export const MAX_NAMESERVERS = 3;
export const MAX_SEARCHES = 32;
/** The maximum length of all search domains with a space between them. */
export const MAX_SEARCH_CHARACTERS = 2048;
