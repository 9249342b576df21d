/**
 * Defines the limits of a pod's resolver configuration. Validation rejects a `dnsConfig` beyond them, and the agent truncates
 * the configuration that it merges from several sources.
 */

export const MAX_NAMESERVERS = 3;
export const MAX_SEARCHES = 32;
/** The maximum length of all search domains with a space between them. */
export const MAX_SEARCH_CHARACTERS = 2048;
