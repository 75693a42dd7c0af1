"""An example list for a focus: names of countries, and words that lead to them (C9)."""

from __future__ import annotations

from typing import Final


def _parse_list(text: str) -> tuple[str, ...]:
    return tuple(text.replace("\n", " ").strip().split(", "))


COUNTRIES: Final = _parse_list("""
afghanistan, albania, algeria, andorra, angola, antigua and barbuda, argentina, armenia,
australia, austria, azerbaijan, bahamas, bahrain, bangladesh, barbados, belarus, belgium,
belize, benin, bhutan, bolivia, bosnia and herzegovina, botswana, brazil, brunei, bulgaria,
burkina faso, burundi, cabo verde, cambodia, cameroon, canada, cape verde,
central african republic, chad, chile, china, colombia, comoros, congo, costa rica, croatia,
cuba, cyprus, czech republic, czechia, democratic republic of the congo, denmark, djibouti,
dominica, dominican republic, east timor, ecuador, egypt, el salvador, equatorial guinea,
eritrea, estonia, eswatini, ethiopia, fiji, finland, france, gabon, gambia, georgia, germany,
ghana, greece, grenada, guatemala, guinea, guinea bissau, guyana, haiti, honduras, hungary,
iceland, india, indonesia, iran, iraq, ireland, israel, italy, ivory coast, jamaica, japan,
jordan, kazakhstan, kenya, kiribati, kosovo, kuwait, kyrgyzstan, laos, latvia, lebanon,
lesotho, liberia, libya, liechtenstein, lithuania, luxembourg, madagascar, malawi, malaysia,
maldives, mali, malta, marshall islands, mauritania, mauritius, mexico, micronesia, moldova,
monaco, mongolia, montenegro, morocco, mozambique, myanmar, namibia, nauru, nepal, netherlands,
new zealand, nicaragua, niger, nigeria, north korea, north macedonia, norway, oman, pakistan,
palau, palestine, panama, papua new guinea, paraguay, peru, philippines, poland, portugal,
qatar, romania, russia, rwanda, saint kitts and nevis, saint lucia,
saint vincent and the grenadines, samoa, san marino, sao tome and principe, saudi arabia,
senegal, serbia, seychelles, sierra leone, singapore, slovakia, slovenia, solomon islands,
somalia, south africa, south korea, south sudan, spain, sri lanka, sudan, suriname, sweden,
switzerland, syria, taiwan, tajikistan, tanzania, thailand, timor leste, togo, tonga,
trinidad and tobago, tunisia, turkey, turkmenistan, tuvalu, uganda, uk, ukraine,
united arab emirates, united kingdom, united states, uruguay, us, usa, uzbekistan, vanuatu,
vatican, venezuela, vietnam, yemen, zambia, zimbabwe
""")

RELATED: Final = _parse_list("""
world, international, global, country, countries, nation, nations, region, regions, africa,
americas, asia, asia pacific, australasia, balkans, caribbean, central america, europe,
latin america, middle east, north america, oceania, pacific, scandinavia, south america,
south asia, southeast asia
""")
