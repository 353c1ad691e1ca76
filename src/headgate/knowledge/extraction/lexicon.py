"""Word lists: legal forms, institutions, roles, product words, and words that are never names."""

from typing import Final


def parse_words(text: str) -> frozenset[str]:
    """Words with spaces between them."""
    return frozenset(text.split())


def parse_names(text: str) -> frozenset[str]:
    """Names of one or more words with commas or ends of lines between them."""
    return frozenset(parse_phrases(text))


def parse_phrases(text: str) -> tuple[str, ...]:
    """The same in their order."""
    return tuple(name.strip() for line in text.splitlines() for name in line.split(",") if name.strip())


# As they are written after a company's name; longer ones first where one begins another.
LEGAL_FORMS: Final = (
    r"GmbH & Co\. KGaA",
    r"GmbH & Co\. KG",
    r"Co\.,? Ltd\.?",
    r"Pty\.? Ltd\.?",
    r"Pvt\.? Ltd\.?",
    r"Pte\.? Ltd\.?",
    r"Sdn\.? Bhd\.?",
    r"Sp\. z o\.o\.",
    r"S\.A\. de C\.V\.",
    r"INC\.?",
    r"LTD\.?",
    r"CORP\.?",
    r"GMBH",
    r"Incorporated",
    r"Corporation",
    r"Limited",
    r"Company",
    r"Inc\.?",
    r"Corp\.?",
    r"Ltd\.?",
    r"Co\.",
    r"L\.L\.C\.",
    r"LLC",
    r"LLP",
    r"L\.P\.",
    r"PLC|plc",
    r"GmbH",
    r"gGmbH",
    r"mbH",
    r"KGaA",
    r"KG",
    r"OHG",
    r"AG",
    r"SE",
    r"e\.V\.",
    r"S\.A\.S\.|SAS",
    r"S\.A\.R\.L\.|SARL|S\.à r\.l\.",
    r"S\.A\.|SA",
    r"S\.p\.A\.|SpA",
    r"S\.r\.l\.|Srl",
    r"S\.L\.",
    r"B\.V\.|BV",
    r"N\.V\.|NV",
    r"A/S",
    r"ApS",
    r"ASA",
    r"AS",
    r"AB",
    r"Oyj|Oy",
    r"a\.s\.",
    r"s\.r\.o\.",
    r"d\.o\.o\.",
    r"Kft\.?",
    r"Zrt\.?",
    r"Lda\.?",
    r"Ltda\.?",
    r"K\.K\.",
    r"JSC|OJSC|PJSC",
    r"OOO",
    r"Bhd\.?",
)
# Institutions: the last word of a name, or its first word with `of` or `for`.
INSTITUTIONS: Final = parse_words(
    """
    Academy Administration Agency Alliance Association Authority Bank Board Bureau Chamber Church Clinic
    Club College Commission Committee Consortium Cooperative Corporation Council Court Embassy Exchange
    Federation Foundation Fund Group Holding Holdings Hospital House Institute Institution League Library
    Ministry Museum Observatory Organization Organisation Orchestra Parliament Party School Senate Society
    Service Services Syndicate Treasury Trust Union University Universität Université Universidad Università
    Hochschule Stichting Stiftung Instituto Institut Fraunhofer
    """
)
# The same before the name.
INSTITUTIONS_BEFORE: Final = parse_words(
    """
    Banco Bank Banque Caisse Crédit Fondation Fundación Groupe Grupo Gruppo Instituto Institut Stichting
    Université Universidad Università Universität Associazione Asociación Bakkerij Cooperativa Verein
    Spedition
    """
)
# Trades: the last word of a company's name.
TRADES: Final = parse_words(
    """
    Advisors Aerospace Airlines Airways Analytics Architects Associates Automotive Beverages Bio Biosciences
    Biotech Brewery Brothers Brands Builders Cable Capital Catering Ceramics Chemicals Communications
    Consultants Consulting Construction Creations Creative Designs Digital Distribution Dynamics Electric
    Electronics Energy Engineering Enterprises Entertainment Equity Express Farms Films Finance Financial
    Foods Freight Games Gaming Genomics Grid Healthcare Hosting Hotels Imaging Industries Infrastructure
    Innovations Instruments Insurance Interactive International Investments Lab Laboratories Labs Logistics
    Machinery Machines Manufacturing Marine Markets Materials Media Medical Metals Microsystems Mills Mining
    Mobility Motors Music Networks News Nutrition Optics Packaging Paper Partners Payments Payroll Petroleum
    Pharma Pharmaceuticals Pictures Plastics Power Press Products Properties Publications Publishing Rail
    Railways Realty Records Recruitment Renewables Research Resources Restaurants Retail Robotics Roasters
    Seafood Securities Security Semiconductor Semiconductors Shipping Software Solutions Steel Steelworks
    Studio Studios Supplies Supply Systems Tech Technologies Technology Telecom Textiles Textil Tobacco Toys
    Trading Transport Travel Utilities Ventures Vineyards Water Wealth Werke Wines Works Workshop
    """
)
PRODUCT_ENDINGS: Final = parse_words(
    """
    Pro Plus Max Lite Mini Ultra Premium Edition Suite Cloud Studio Server Desktop Mobile Express SDK OS Air
    Neo XL
    """
)
PRODUCT_KINDS: Final = parse_phrases(
    """
    library, framework, tool, platform, app, application, database, language, operating, system, browser
    router, scanner, printer, phone, smartphone, tablet, laptop, camera, car, drug, vaccine, engine, editor
    plugin, game, compiler, server, device, chip, processor, service, package, program, toolkit, module
    sensor, drone, robot
    """
)
COMPANY_KINDS: Final = parse_phrases(
    """
    company, firm, manufacturer, maker, supplier, provider, vendor, start-up, startup, bank, insurer
    retailer, distributor, subsidiary, developer, publisher, producer, operator, consultancy, agency
    carrier, contractor, charity, corporation, business, brewery, non-profit, nonprofit, builder, wholesaler
    airline, utility
    """
)
TITLES: Final = parse_words(
    """
    Dr Mr Mrs Ms Miss Prof Professor Sir Dame Lord Lady Rev Herr Frau Monsieur Madame Señor Señora Captain
    Colonel General Judge Justice Senator Nurse Sister President Chancellor Minister Pope King Queen Prince
    Princess Inspector Sergeant
    """
)
ROLES: Final = parse_phrases(
    """
    ceo, cto, cfo, coo, cio, ciso, cmo, founder, co-founder, cofounder, chairman, chairwoman, chair
    president, vice-president, director, manager, partner, analyst, engineer, lawyer, spokesman, spokeswoman
    spokesperson, owner, head, secretary, treasurer, professor, researcher, scientist, developer, architect
    designer, editor, author, creator, co-creator, inventor, consultant, lead, mayor, governor, minister
    senator, attorney, accountant, officer, buyer, employee, economist, boss, principal, trustee
    """
)
LONG_ROLES: Final = parse_phrases(
    """
    chief executive, chief executive officer, chief technology officer, chief financial officer
    chief operating officer, chief information officer, chief information security officer, chief scientist
    chief economist, managing director, finance director, executive director, vice president
    general manager, product manager, project manager, account manager, managing partner, general counsel
    lead developer, lead author, original author, principal author, board member, sales director
    technical director, marketing director, procurement lead, project lead, team lead, software engineer
    senior engineer, data scientist, head of operations, head of sales, head of risk, head of research
    head of procurement, head of engineering, head of marketing, head of finance, deputy director
    legal counsel, country manager
    """
)
# Capitalised where a sentence, a heading or a defined term begins, and never a name.
FUNCTION_WORDS: Final = parse_words(
    """
    a about above according across after afterwards again against all almost along already also although
    always am among an and another any anyone anything apart are around as ask at away back because become
    been before behind being below beside besides between beyond both but by call can cannot choose click
    close come consider could dear did do does doing done don't down due during each early either else enter
    even ever every everyone everything except exceptions few finally first following for former from
    further general get give given go good great had has have having he hello help hence her here herself hi
    high him his historically how however i i'm i've if important in indeed inside instead into is it it's
    its itself just keep known large last later least less let like literally long low made main make many
    may me meanwhile might more moreover most much must my near nearly need neither never nevertheless new
    next no none nor not note nothing now of off often old on once one only onto open or other others
    otherwise our ours out outside over own perhaps please present press previous previously primarily put
    rather really recently regards remove removed replace run said same say see select send set several
    shall she should show similarly since small so some somebody someone something sometimes soon starting
    still such take tell than thank thanks that that's the their them themselves then there there's
    thereafter therefore these they this those though through throughout thus to today together tomorrow too
    toward towards two type under unless unlike until up upon us use used users using usually various very
    via warning was we well were what what's whatever when whenever where whereas wherever whether which
    while who whoever whole whom whose why will with within without words would write yes yesterday yet you
    your yours added fixed changed updated deprecated kind best sincerely hereby whereof three four five six
    seven eight nine ten fourteen thirty sixty ninety hundred thousand million billion second third fourth
    """
)
MONTHS_AND_DAYS: Final = parse_words(
    """
    january february march april may june july august september october november december jan feb mar apr
    jun jul aug sep sept oct nov dec monday tuesday wednesday thursday friday saturday sunday mon tue wed
    thu fri sat sun spring summer autumn winter christmas easter q1 q2 q3 q4 am pm
    """
)
# Words that contracts, policies, manuals and tables often capitalise.
COMMON_WORDS: Final = parse_words(
    """
    access account accounts accounting action addendum address admin administration administrator advanced
    affiliate affiliates agenda agent agents agreement alert alerts amendment annex annual answer apologies
    appendix applicable application applications approval approved architecture archive article assets
    assignment attachment attendees audit author authors availability background backup backups balance bank
    basic benefits bids bill billing board body breach browser budget bug bugs build bus business button
    buyer cache calendar call canceled capital care carrier case category cause center central certificate
    change changes channel channels chapter chart check checklist class clause clauses client clients closed
    cloud code codes comment comments commercial commission commit committee company compliance component
    components computer conditions confidential confidentiality configuration connection connector console
    consultant contact content contents contract contractor contractors contracts control controller
    controls copyright core corporate cost costs country court coverage credit credits currency current
    custom customer customers daily damages dark dashboard data database date deadline debug decision
    default definition definitions delivery demo department dependencies deployment description design
    desktop detail details developer developers development device devices digital director disaster
    disclaimer discount discussion dispute disputes document documentation documents domain draft driver
    drivers economy edition editor education effective electronic email emergency employee employees
    employer employment encryption end endpoint energy engine engineering enterprise entity environment
    environmental error errors escalation euro evaluation event events example examples exception exchange
    execution executive exhibit expense expenses export express external facility fact factory failure faq
    feature features fee fees field fields figure file files filter filters final finance financial finding
    findings fiscal folder force form format forms framework front full function functions fund funds future
    gateway global goal goals goods government grand gross group groups guarantee guest guests guide
    guidelines handler hardware header health history home host hour hours house human id identity image
    images impact import importer improvements incident incidents income indemnity index industry
    information infrastructure initial input insurance integration intellectual intelligence interest
    interface intermediate internal international internet interpretation introduction inventory invitations
    invite invoice invoices issue issues item items job jobs joint key keyboard keys label language laptop
    law laws layer lead leader learning lease legacy legal lesson level levels liability library license
    licence licensee licensor limit limitation limited line link links list local location log login logs
    loss machine mail maintenance management manager managers manual map market marketing master material
    materials matter maximum meeting member members memory menu message messages method metrics minimum
    minutes mobile mode model models module modules money monitor monitoring month monthly months motion
    name national net network networks news newsletter normal note notes notice notices notification
    notifications number object objective objectives office officer online operating operation operations
    operator option options order orders organisation organization origin original output overview owner
    owners package packages page pages panel paper parameter parameters part parties partner partners
    partnership party password paste path payment payments pending people percent performance period
    permission permissions person personal personnel phase phone plan planning plans platform point policies
    policy pool port position post power practice premises preview price prices pricing primary principles
    priority privacy private procedure procedures process processes processing processor procurement product
    production products professional profile profit program programme project projects property proposal
    proposals protection protocol provider providers provision provisions proxy public publication purchase
    purpose quality quarter quarterly query question questions queue quick quote rate rates reader real
    reason receipt receipts receiver recipient recommendation record records recovery reference references
    refund region register registration registry regulation regulations relations release releases remedies
    remedy remote renewal rent repair report reports repository representative request requests requirement
    requirements research reserve resource resources response responses responsibilities responsibility
    restart result results retention return returns revenue review revision right rights risk risks road
    role roles room root route router rule rules safety salary sales sample save schedule schema scope
    screen script search secretary section sections secure security seller sender senior server servers
    service services session sessions settings setup share shareholder shares shipment shipping shop short
    shortcuts sign signature signed signing site sites software solution solutions source sources south
    specification specifications staff stage standard standards start state statement status steel step
    steps stock storage store strategy street structure student studio study style sub-processors
    subcontractor subject submission subscription subsidiary success summary supplier suppliers supply
    support surface system systems tab table tables target task tasks tax taxes team teams technical
    technologies technology telephone template templates tenant term termination terms test testing tests
    text theme thing things ticket tickets time timeline timeout title token tokens tool toolkit tools topic
    total trade traffic training transaction transactions transfer transport travel treasury trial trust
    tutorial undo unit units update updates upgrade url usage user value values vault vehicle vendor vendors
    version versions video view views virtual vision visit volume waiver warehouse warranties warranty web
    website week weekly weeks window windows work worker workers workflow working workplace workshop world
    year yearly years yield zone provider's customer's north east west big blue green red black white gold
    silver dev prod foundation institute university ministry association council agency hospital college
    school museum society parliament union federation authority mr mrs ms dr prof ltd inc corp llc plc dear
    ceo cto cfo pull push merge branch main latest stable beta alpha class-a open-source wifi
    """
)
# All capitals, and never a name.
ACRONYMS: Final = parse_words(
    """
    AI API APIS ASCII ATM AM BIOS BSD CD CEO CFO CI CIO CISO CLI CMO COO CPU CRM CSS CSV CTO CV DB DNS DVD
    EDI ERP ETA ETL EUR EURO FAQ FTP GB GBP GDPR GHZ GIF GMT GNU GPL GPS GPU GUI HDD HR HTML HTTP HTTPS ID
    IDE IDS IMAP IO IP ISBN ISO IT JPEG JPG JSON JVM JWT KB KPI LAN LED LDAP LGPL MB MCP MD MHZ MIT MP ML
    MSA NDA NLP OAUTH OCR OK ORM OS PC PDF PGP PIN PM PNG PO QA QR RAM RBAC REST RFC RFP ROI RPC RSA RSS
    SAAS SDK SEO SHA SLA SLAS SMS SMTP SOAP SOC SOW SQL SSD SSH SSL SSO SVG TB TBD TCP TLS TODO TV UDP UI
    URI URL USB USD UTC UTF UUID UX VAT VM VPN WAN WIFI XHTML XLSX XML YAML YES NO NOT AND OR IF THE FOR ALL
    ANY MUST SHALL SHOULD MAY NOTE WARNING IMPORTANT NULL TRUE FALSE GET POST PUT DELETE PATCH HEAD OPTIONS
    II III IV VI VII VIII IX XI XII AES HMAC CORS CRUD DOM EOF FIFO LIFO LRU TTL ACID
    """
)
# Before a number they name a part of a document, not a product.
NUMBERED_NOUNS: Final = parse_words(
    """
    annex appendix article chapter clause figure finding item level line page paragraph part phase point
    question release revision rfc rule schedule section sprint stage step table task test tier type unit
    version volume week year day iso din en invoice order note ticket issue room floor gate class group
    grade exhibit option build http port utf top highway route
    """
)
