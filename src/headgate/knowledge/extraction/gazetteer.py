"""Known names: countries, cities, given names, and widely known organisations and products."""

from typing import Final

from headgate.knowledge.extraction.lexicon import parse_names, parse_phrases, parse_words

COUNTRIES: Final = parse_names(
    """
    Afghanistan, Albania, Algeria, Andorra, Angola, Argentina, Armenia, Australia, Austria, Azerbaijan
    Bahamas, Bahrain, Bangladesh, Barbados, Belarus, Belgium, Belize, Benin, Bhutan, Bolivia, Bosnia
    Bosnia and Herzegovina, Botswana, Brazil, Brunei, Bulgaria, Burkina Faso, Burundi, Cambodia, Cameroon
    Canada, Cape Verde, Central African Republic, Chile, China, Colombia, Comoros, Congo, Costa Rica
    Croatia, Cuba, Cyprus, Czech Republic, Czechia, Denmark, Djibouti, Dominican Republic, Ecuador, Egypt
    El Salvador, Equatorial Guinea, Eritrea, Estonia, Eswatini, Ethiopia, Fiji, Finland, France, Gabon
    Gambia, Georgia, Germany, Ghana, Greece, Grenada, Guatemala, Guinea, Guyana, Haiti, Honduras, Hungary
    Iceland, India, Indonesia, Iran, Iraq, Ireland, Israel, Italy, Ivory Coast, Jamaica, Japan, Jordan
    Kazakhstan, Kenya, Kosovo, Kuwait, Kyrgyzstan, Laos, Latvia, Lebanon, Lesotho, Liberia, Libya
    Liechtenstein, Lithuania, Luxembourg, Madagascar, Malawi, Malaysia, Maldives, Mali, Malta, Mauritania
    Mauritius, Mexico, Moldova, Monaco, Mongolia, Montenegro, Morocco, Mozambique, Myanmar, Namibia, Nepal
    Netherlands, New Zealand, Nicaragua, Niger, Nigeria, North Korea, North Macedonia, Norway, Oman
    Pakistan, Palestine, Panama, Papua New Guinea, Paraguay, Peru, Philippines, Poland, Portugal, Qatar
    Romania, Russia, Rwanda, Samoa, San Marino, Saudi Arabia, Senegal, Serbia, Seychelles, Sierra Leone
    Singapore, Slovakia, Slovenia, Somalia, South Africa, South Korea, South Sudan, Spain, Sri Lanka, Sudan
    Suriname, Sweden, Switzerland, Syria, Taiwan, Tajikistan, Tanzania, Thailand, Togo, Tonga
    Trinidad and Tobago, Tunisia, Turkey, Türkiye, Turkmenistan, Uganda, Ukraine, United Arab Emirates
    United Kingdom, United States, United States of America, Uruguay, Uzbekistan, Vanuatu, Vatican City
    Venezuela, Vietnam, Yemen, Zambia, Zimbabwe, USA, UK, UAE, U.S., U.K., U.S.A., US, Great Britain
    Britain, Holland
    """
)
REGIONS: Final = parse_names(
    """
    Africa, Antarctica, Asia, Europe, North America, South America, Latin America, Central America, Oceania
    Middle East, Far East, Southeast Asia, East Asia, South Asia, Central Asia, Western Europe
    Eastern Europe, Central Europe, Northern Europe, Southern Europe, North Africa, West Africa, East Africa
    Sub-Saharan Africa, Scandinavia, Balkans, Benelux, Caribbean, Mediterranean, England, Scotland, Wales
    Northern Ireland, Bavaria, Saxony, Hesse, Brandenburg, Baden-Württemberg, Lower Saxony, Catalonia
    Andalusia, Lombardy, Tuscany, Sicily, Sardinia, Brittany, Normandy, Provence, Flanders, Wallonia, Tyrol
    Styria, Silesia, Crimea, Siberia, Punjab, Gujarat, Maharashtra, Karnataka, Kerala, Tamil Nadu, Telangana
    Guangdong, Zhejiang, Jiangsu, Sichuan, Hokkaido, Okinawa, Java, Sumatra, Borneo, Bali, Alabama, Alaska
    Arizona, Arkansas, California, Colorado, Connecticut, Delaware, Florida, Hawaii, Idaho, Illinois
    Indiana, Iowa, Kansas, Kentucky, Louisiana, Maine, Maryland, Massachusetts, Michigan, Minnesota
    Mississippi, Missouri, Montana, Nebraska, Nevada, New Hampshire, New Jersey, New Mexico, North Carolina
    North Dakota, Ohio, Oklahoma, Oregon, Pennsylvania, Rhode Island, South Carolina, South Dakota
    Tennessee, Texas, Utah, Vermont, Virginia, West Virginia, Wisconsin, Wyoming, Ontario, Quebec, Québec
    British Columbia, Alberta, Manitoba, Saskatchewan, Nova Scotia, New South Wales, Queensland, Tasmania
    Western Australia, South Australia, Silicon Valley, Rhine, Danube, Thames, Nile, Amazon River, Alps
    Pyrenees, Himalayas, Andes, Baltic Sea, North Sea, Black Sea, Red Sea, Pacific, Atlantic, Arctic
    Greenland, Puerto Rico
    """
)
CITIES: Final = parse_names(
    """
    Aachen, Aarhus, Aberdeen, Abidjan, Abu Dhabi, Abuja, Accra, Adana, Addis Ababa, Adelaide, Agra
    Ahmedabad, Albuquerque, Aleppo, Alexandria, Algiers, Alicante, Almaty, Amman, Amsterdam, Ankara, Antwerp
    Athens, Atlanta, Auckland, Austin, Baghdad, Baku, Baltimore, Bangalore, Bengaluru, Bangkok, Barcelona
    Bari, Basel, Basra, Beijing, Beirut, Belfast, Belgrade, Bergen, Berlin, Bern, Bielefeld, Bilbao
    Birmingham, Bochum, Bogotá, Bogota, Bologna, Bonn, Bordeaux, Boston, Brasília, Brasilia, Bratislava
    Bremen, Brighton, Brisbane, Bristol, Brno, Brussels, Bucharest, Budapest, Buenos Aires, Buffalo, Bursa
    Busan, Cairo, Calgary, Cali, Cambridge, Canberra, Cape Town, Caracas, Cardiff, Casablanca, Chandigarh
    Changsha, Charlotte, Chelyabinsk, Chengdu, Chennai, Chicago, Chisinau, Chongqing, Christchurch
    Cincinnati, Cleveland, Cologne, Colombo, Columbus, Copenhagen, Córdoba, Cork, Curitiba, Dakar, Dalian
    Dallas, Damascus, Dar es Salaam, Darmstadt, Darwin, Delhi, Denver, Detroit, Dhaka, Doha, Donetsk
    Dortmund, Dresden, Dubai, Dublin, Duisburg, Durban, Düsseldorf, Dusseldorf, Edinburgh, Edmonton
    Eindhoven, Erfurt, Essen, Florence, Fortaleza, Frankfurt, Freiburg, Fukuoka, Gaza, Gdańsk, Gdansk
    Geneva, Genoa, Ghent, Glasgow, Gothenburg, Göteborg, Granada, Graz, Grenoble, Groningen, Guadalajara
    Guangzhou, Guatemala City, Guayaquil, Haifa, Halifax, Hamburg, Hangzhou, Hanoi, Hanover, Hannover
    Harare, Harbin, Havana, Heidelberg, Helsinki, Hiroshima, Ho Chi Minh City, Hong Kong, Honolulu, Houston
    Hyderabad, Ibadan, Incheon, Indianapolis, Innsbruck, Islamabad, Istanbul, Izmir, Jaipur, Jakarta, Jeddah
    Jerusalem, Johannesburg, Kabul, Kampala, Kano, Kanpur, Kansas City, Karachi, Karlsruhe, Kassel
    Kathmandu, Katowice, Kazan, Kharkiv, Khartoum, Kiel, Kigali, Kingston, Kinshasa, Kobe, Kolkata, Kraków
    Krakow, Kuala Lumpur, Kuwait City, Kyiv, Kiev, Kyoto, La Paz, Lagos, Lahore, Las Vegas, Lausanne, Leeds
    Leicester, Leiden, Leipzig, Lille, Lima, Linz, Lisbon, Liverpool, Ljubljana, London, Los Angeles, Luanda
    Lusaka, Lviv, Lyon, Maastricht, Madrid, Mainz, Malaga, Málaga, Malmö, Manaus, Manchester, Manila
    Mannheim, Marrakesh, Marseille, Mecca, Medellín, Melbourne, Memphis, Mexico City, Miami, Milan
    Milwaukee, Minneapolis, Minsk, Mogadishu, Mombasa, Montevideo, Montpellier, Montreal, Montréal, Moscow
    Mumbai, Munich, München, Münster, Muscat, Nagoya, Nairobi, Nanjing, Nantes, Naples, Nashville, New Delhi
    New Orleans, New York, New York City, Newark, Newcastle, Nice, Nicosia, Nottingham, Novosibirsk
    Nuremberg, Nürnberg, Oakland, Odesa, Odessa, Omaha, Oporto, Orlando, Osaka, Oslo, Ottawa, Oxford
    Palermo, Palo Alto, Panama City, Paris, Perth, Philadelphia, Phnom Penh, Phoenix, Pittsburgh, Plovdiv
    Port Moresby, Portland, Porto, Porto Alegre, Potsdam, Poznań, Prague, Pretoria, Pune, Pyongyang
    Quebec City, Quito, Rabat, Raleigh, Recife, Reykjavik, Reykjavík, Riga, Rio de Janeiro, Riyadh, Rome
    Rosario, Rostock, Rotterdam, Sacramento, Salt Lake City, Salvador, Salzburg, San Antonio, San Diego
    San Francisco, San José, San Jose, San Juan, Santa Barbara, Santiago, Santo Domingo, São Paulo
    Sao Paulo, Sapporo, Sarajevo, Seattle, Seoul, Seville, Shanghai, Sheffield, Shenzhen, Shiraz, Skopje
    Sofia, Southampton, St. Gallen, St. Louis, St. Petersburg, Stavanger, Stockholm, Strasbourg, Stuttgart
    Surat, Suzhou, Sydney, Taipei, Tallinn, Tampa, Tampere, Tashkent, Tbilisi, Tehran, Tel Aviv, The Hague
    Thessaloniki, Tianjin, Tijuana, Tirana, Tokyo, Toronto, Toulouse, Trieste, Tripoli, Trondheim, Tunis
    Turin, Turku, Uppsala, Utrecht, Valencia, Valletta, Vancouver, Venice, Verona, Vienna, Vientiane
    Vilnius, Vladivostok, Warsaw, Washington, Washington DC, Washington D.C., Wellington, Wiesbaden
    Winnipeg, Wolfsburg, Wrocław, Wroclaw, Wuhan, Würzburg, Xiamen, Yangon, Yekaterinburg, Yerevan, Yokohama
    Zagreb, Zaragoza, Zürich, Zurich
    """
)
PLACES: Final = COUNTRIES | REGIONS | CITIES
# As often a person, a company or a word: a place only with evidence in the context.
AMBIGUOUS_PLACES: Final = parse_names(
    """
    Chad, Charlotte, Florence, Georgia, Jordan, Lima, Mali, Nice, Phoenix, Orlando, Sofia, Turkey
    Washington, Java, Essen, Split, Columbus, Salvador, Santiago, Victoria, Darwin, Kobe, US, Cork, Reading
    Mobile, Amazon River, Pacific, Atlantic, Arctic, Kiel, Verona
    """
)
# Words for places: the first ones after the name, the others before it with `of`.
PLACE_NOUNS: Final = parse_words(
    """
    River Lake Canal County Province Prefecture Island Islands Valley Bay Peninsula Mountains Mountain Coast
    Desert Strait District Harbour Harbor Airport Ocean Sea
    """
)
PLACE_NOUNS_BEFORE_OF: Final = parse_words(
    """
    State City Republic Kingdom Gulf Bay Province County Port Isle Strait Canton Commonwealth
    """
)


GIVEN_NAMES: Final = parse_words(
    """
    Aaron Abby Abdul Abdullah Abigail Abraham Ada Adam Adaeze Adele Adrian Adriana Agnes Agnieszka Ahmad
    Ahmed Aidan Aisha Akira Aki Alan Albert Alberto Alec Aleksander Aleksandra Alessandra Alessandro Alex
    Alexander Alexandra Alexandre Alexei Alexey Alexis Alfonso Alfred Alfredo Ali Alice Alicia Alina Alison
    Allan Allen Alma Alvaro Amanda Amara Amber Amelia Amina Amir Amit Amy Ana Anas Anastasia Anders Andre
    Andrea Andreas Andrei Andrew Andrzej André Angela Angelo Anil Anita Anja Ann Anna Anne Annette Annika
    Anthony Antoine Anton Antonia Antonio Anya Aria Ariel Arjun Arne Arnold Arthur Artur Arturo Asha Ashley
    Astrid Audrey Axel Ayesha Barbara Bart Beata Beatrice Beatriz Ben Benedict Benjamin Bernard Bernd
    Bernhard Beth Bettina Bianca Birgit Björn Bob Bogdan Boris Brad Bradley Brandon Brenda Brendan Brent
    Brian Bridget Bruce Bruno Bryan Camille Carl Carla Carlo Carlos Carmen Carol Carole Carolina Caroline
    Catherine Cecilia Cédric Celia Cesar Chad Chandra Charles Charlie Charlotte Chen Chidi Chinedu Chiara
    Chloe Chris Christa Christian Christina Christine Christoph Christophe Christopher Chukwuma Cindy Claire
    Clara Claude Claudia Claudio Clemens Colin Connor Conrad Constance Craig Cristina Curtis Cynthia Dagmar
    Daisuke Damian Damien Dan Dana Daniel Daniela Danielle Danilo Danny Daria Darius Darren Dave David Dean
    Deborah Deepak Denis Denise Dennis Derek Diana Diane Diego Dieter Dietrich Dimitri Dina Dirk Dmitri
    Dmitry Dominic Dominik Dominique Don Donald Donna Dora Doris Dorothy Doug Douglas Duncan Dylan Eberhard
    Ed Eddie Edgar Edith Edmund Eduardo Edward Edwin Eileen Elaine Eleanor Elena Elias Elif Elisa Elisabeth
    Elizabeth Ella Ellen Elliot Elsa Emil Emilia Emilie Emilio Emily Emma Emmanuel Enrico Enrique Eric Erica
    Erich Erik Erika Erin Ernest Ernst Esther Ethan Eugene Eva Evan Eve Evelyn Ewa Fabian Fabio Fabrice
    Farah Fatima Federico Felicity Felipe Felix Fernanda Fernando Fiona Florence Florian Frances Francesca
    Francesco Francis Francisco Franck Frank Franz François Françoise Fred Freddy Frederic Frederick Fredrik
    Frida Friedrich Gabriel Gabriela Gabriele Gareth Gary Gavin Geoff Geoffrey George Georg Gerald Gerard
    Gerd Gerhard Gertrude Gianluca Gianni Gideon Gilbert Gina Giorgio Giovanni Giulia Giuseppe Glenn Gloria
    Gordon Grace Graham Greg Gregor Gregory Greta Grzegorz Guido Guillaume Guillermo Gunnar Gunther Gustav
    Gustavo Guy Hamid Hana Hanna Hannah Hannes Hans Harald Hari Haris Harold Haruki Harry Harvey Hassan
    Heather Hector Heidi Heike Heinrich Heinz Helen Helena Helene Helga Helmut Henri Henrik Henry Herbert
    Herman Hermann Hiroshi Holger Hossein Howard Hubert Hugh Hugo Hussein Ian Ibrahim Ida Ignacio Igor Ilse
    Ines Inga Ingrid Ioana Ion Irene Irina Iris Irma Isaac Isabel Isabella Isabelle Ismail Ivan Ivana Ivo
    Jack Jackie Jacob Jacqueline Jacques Jaime Jake Jakob Jakub James Jamie Jan Jana Jane Janet Janice
    Javier Jay Jean Jeanne Jeff Jeffrey Jennifer Jenny Jens Jeremy Jerome Jerry Jessica Jesús Jill Jim Jimmy
    Jing Joachim Joan Joanna Joanne Joe Joel Johan Johann Johanna Johannes John Johnny Jon Jonas Jonathan
    Jorge Josef Joseph Josephine Josh Joshua José João Joyce Juan Juana Judith Judy Jukka Jules Julia Julian
    Juliana Julie Julien Juliet Julio Julius Jun Jürgen Justin Justine Karen Karim Karin Karina Karl Karla
    Karol Karolina Kasper Kate Katharina Katherine Kathleen Kathryn Katie Katja Katrin Kavita Kay Kazuo
    Keiko Keith Kelly Ken Kenji Kenneth Kerstin Kevin Khaled Khalid Kim Kimberly Kiran Klaus Knut Kofi
    Konrad Konstantin Krishna Kristen Kristian Kristin Kristina Krzysztof Kumar Kurt Kwame Kyle Lakshmi Lara
    Larry Lars Laszlo László Laura Lauren Laurence Laurent Lawrence Lea Leah Lee Leif Leila Lena Leo Leon
    Leonard Leonardo Leonie Leslie Leticia Liam Lidia Lila Lily Lina Linda Linus Lisa Liz Lois Lorena
    Lorenzo Lou Louis Louise Luca Lucas Lucia Luciano Lucie Lucy Lucía Ludwig Luigi Luis Luisa Luiz Lukas
    Luke Lydia Lynn Maciej Madeleine Magda Magdalena Magnus Mahmoud Maja Malcolm Malik Manfred Manuel
    Manuela Marc Marcel Marcela Marcelo Marcin Marco Marcos Marcus Marek Margaret Margarita Maria Mariam
    Marian Marianne Marie Mariana Marina Mario Marion Marisa Marius Mark Marko Markus Marlene Marta Martha
    Martin Martina Martine Mary Maryam Masako Masahiro Mateo Mateusz Mathias Mathieu Mats Matt Matteo
    Matthew Matthias Matthieu Maureen Maurice Mauricio Max Maxim Maxime Maya Megan Mehmet Mei Melanie
    Melissa Mercedes Meredith Mia Michael Michaela Michal Michel Michele Michelle Miguel Mikael Mike Mikhail
    Mila Milan Milena Ming Miriam Mitchell Mohamed Mohammad Mohammed Mona Monica Monika Monique Morgan
    Moritz Moses Muhammad Murat Mustafa Nadia Nadine Nancy Naomi Natalia Natalie Natasha Nathalie Nathan
    Nathaniel Neil Nelson Ngozi Nicholas Nick Nicola Nicolas Nicole Niels Nigel Niklas Nikola Nikolai
    Nikolaus Nils Nina Noah Noel Nora Norbert Norman Nuno Octavio Olaf Ole Oleg Olga Oliver Olivia Olivier
    Omar Oscar Oskar Otto Owen Pablo Paolo Pascal Pat Patricia Patrick Patrik Paul Paula Paulo Pavel Pawel
    Paweł Pedro Peggy Penelope Per Percy Pete Peter Petra Petr Phil Philip Philipp Philippe Phillip Pia
    Pierre Pieter Pilar Piotr Pradeep Priya Qing Rachel Rafael Raj Rajesh Ralf Ralph Ramesh Ramon Randy
    Raphael Raul Ravi Ray Raymond Rebecca Regina Reiner Reinhard Renate Rene René Ricardo Riccardo Richard
    Rick Rita Robert Roberta Roberto Robin Roger Roland Rolf Roman Ron Ronald Rosa Rosemary Ross Roy Ruben
    Rudolf Rui Rupert Russell Ruth Ryan Sabine Sabrina Sally Salma Salvador Sam Samantha Sami Samir Samuel
    Sandra Sandro Sanjay Santiago Sara Sarah Sasha Satoshi Scott Sean Sebastian Sebastián Sergei Sergey
    Sergio Seth Shane Shannon Sharon Sheila Shirley Sigrid Silke Silvia Simon Simona Simone Sofia Sonia
    Sonja Sophia Sophie Søren Stacy Stan Stanislav Stefan Stefania Stefano Steffen Stella Stephan Stephanie
    Stephen Steve Steven Stuart Sue Sunil Suresh Susan Susanna Susanne Suzanne Sven Svetlana Sylvia Sylvie
    Takeshi Tamara Tanja Tanya Tara Tariq Tatiana Teresa Terence Teri Terry Theo Theodor Theodore Theresa
    Thiago Thomas Tiffany Tim Timo Timothy Tina Tobias Todd Tom Tomas Tomasz Tomoko Toni Tony Torsten Tracy
    Trevor Tristan Tyler Uli Ulrich Ulrike Ursula Ute Uwe Valentin Valentina Valeria Valerie Vanessa Vera
    Veronica Victor Victoria Vijay Vikram Viktor Vincent Vincenzo Viola Virginie Vivian Vladimir Vlad Walter
    Wanda Wei Wendy Werner Wilhelm Willem William Willy Wilma Winston Wojciech Wolfgang Xavier Xiao Yan Yang
    Yannick Yasmin Yi Yolanda Yosef Youssef Yuan Yuki Yuko Yuri Yusuf Yves Yvonne Zachary Zainab Zoe Zofia
    Zsolt
    """
)
# Alone they are more often something else, so one word of them is no evidence.
AMBIGUOUS_GIVEN_NAMES: Final = parse_words(
    """
    Adele Alma Amber Angelo Ariel Aria Carmen Chad Charlotte Constance Daria Dean Don Eve Faith Felicity
    Florence Gloria Grace Guy Hope Ion Iris Jack Jay Joy Kay Lily Lima Mark May Max Mercedes Milan Mona
    Morgan Ole Pat Penny Per Pia Ray Robin Roman Rose Ross Ruby San Sean Sofia Stella Sydney Tara Toni Uli
    Vera Victoria Viola Will Yang Chen Kim Lee Nelson Norman Austin Jordan Virginia
    """
)
# Between given name and surname.
NAME_PARTICLES: Final = parse_phrases(
    """
    van, von, de, di, da, dos, del, della, du, la, le, ten, ter, bin, ibn, al, el, zu, af, av
    """
)
# In a German text they begin the next name, unless another one stands before them.
NAME_ARTICLES: Final = ("der", "den")


ORGANISATIONS: Final = parse_names(
    """
    3M, ABB, Accenture, Adidas, Adobe, Airbus, Aldi, Alibaba, Allianz, Alphabet, Amazon, AMD
    American Express, Anthropic, Apple, ASML, AstraZeneca, AT&T, Atlassian, Audi, AXA, BAE Systems, Baidu
    Barclays, BASF, Bayer, BBC, Bloomberg, BMW, BNP Paribas, Boeing, Bosch, BP, British Airways, ByteDance
    Canon, Capgemini, Carrefour, Caterpillar, Chevron, Cisco, Citigroup, Cloudflare, Coca-Cola, Cognizant
    Commerzbank, Continental, Credit Suisse, Daimler, Danone, Databricks, Dell, Deloitte, Deutsche Bank
    Deutsche Telekom, DHL, Dropbox, E.ON, eBay, EDF, Ericsson, Ernst & Young, ExxonMobil, Facebook, FedEx
    Ferrari, Fiat, Ford, Foxconn, Fujitsu, General Electric, General Motors, GitHub, GitLab, Goldman Sachs
    Google, GSK, Heineken, Hewlett-Packard, Hitachi, Honda, HSBC, Huawei, Hyundai, IBM, IKEA, Ikea, Infosys
    ING, Intel, JPMorgan, KPMG, Lenovo, Lidl, LinkedIn, L'Oréal, Lufthansa, Maersk, Mastercard, McDonald's
    McKinsey, Merck, Meta, Michelin, Microsoft, Mitsubishi, Morgan Stanley, Mozilla, Nestlé, Netflix, Nike
    Nintendo, Nissan, Nokia, Novartis, Nvidia, NVIDIA, OpenAI, Oracle, Orange, PayPal, PepsiCo, Pfizer
    Philips, Porsche, PwC, Procter & Gamble, Qualcomm, Red Hat, Renault, Roche, Rolls-Royce, Ryanair
    Salesforce, Samsung, Sanofi, SAP, Sequoia, Shell, Shopify, Siemens, Skanska, SoftBank, Sony, SpaceX
    Spotify, Stellantis, Stripe, Telefónica, Tencent, Tesco, Tesla, Thales, ThyssenKrupp, TotalEnergies
    Toshiba, Toyota, TSMC, Twitter, Uber, UBS, Unilever, UPS, Verizon, Visa, Vodafone, Volkswagen, Volvo
    Walmart, Wipro, Xiaomi, Zoom, NATO, NASA, UNESCO, UNICEF, OECD, OPEC, WTO, UN, EU, FBI, CIA
    European Union, United Nations, European Commission, European Parliament, World Bank
    World Health Organization, International Monetary Fund, Federal Reserve, Red Cross, Interpol
    """
)
# Words as well: they need more than the name.
UNSURE_ORGANISATIONS: Final = parse_names(
    """
    Apple, Amazon, Canon, Continental, Ford, Meta, Nike, Oracle, Orange, Shell, Stripe, Visa, Zoom, Sequoia
    Caterpillar, UN, EU, Target
    """
)
PRODUCTS: Final = parse_names(
    """
    Airflow, Amazon Web Services, Android, Angular, Ansible, AWS, Azure, Bitcoin, Bitbucket, Cassandra
    Chrome, ChatGPT, Claude Code, CentOS, Confluence, Debian, Django, Docker, Elasticsearch, Ethereum, Excel
    FastAPI, Fedora, Firefox, Flask, Gmail, Google Cloud, Google Maps, Google Workspace, Grafana, GraphQL
    Hadoop, iOS, iPad, iPhone, JavaScript, Javascript, Jenkins, Jira, Kafka, Kotlin, Kubernetes, LibreOffice
    Linux, macOS, MariaDB, Microsoft Azure, Microsoft Excel, Microsoft Office, Microsoft Teams
    Microsoft Word, MongoDB, MySQL, NetSuite, NGINX, Nginx, Node.js, NumPy, Office 365, OneDrive, OpenShift
    Oracle Database, Outlook, Photoshop, PlayStation, PostgreSQL, Postgres, PowerPoint, Prometheus, Python
    PyTorch, RabbitMQ, React, Redis, SAP ERP, SAP HANA, ServiceNow, SharePoint, Slack, Snowflake, Solaris
    SQLite, Tableau, TensorFlow, Terraform, Trello, TypeScript, Ubuntu, Unix, UNIX, Visual Studio
    Visual Studio Code, VMware, WebAssembly, Webassembly, WhatsApp, Windows, Windows Server, WordPress, Xbox
    YouTube, Zulip
    """
)
UNSURE_PRODUCTS: Final = parse_names(
    """
    Airflow, Angular, Cassandra, Confluence, Excel, Flask, Outlook, React, Solaris, Snowflake, Slack
    Windows
    """
)
